#pragma once

#include <cstdint>
#include <vector>

namespace lockstep {

struct SamplerOptions {
  std::int64_t size = 0;        ///< samples in the dataset
  std::int64_t batch_size = 1;  ///< samples a replica and step
  std::int64_t replicas = 1;
  std::uint64_t seed = 0;
  bool shuffle = true;  ///< without: the dataset's own order in every epoch
};

/// Which samples each replica takes in each step. An epoch's order is a pure function of (seed,
/// epoch, size), the same on every replica, machine and run. Step s takes the next
/// batch_size · replicas samples of it, the global batch, and cuts them over the replicas with
/// shard(): an epoch uses every sample exactly once. Only the last step's global batch may be
/// smaller; its shards then may differ by one, and some are empty where samples are fewer than
/// replicas.
///
/// One thread at a time, since the order of the last epoch asked for is kept: each replica owns its
/// sampler.
class Sampler {
 public:
  /// `size`, `batch_size`, `replicas` and their products must be at least 1 and fit in an int64, or
  /// a ValueError is thrown.
  explicit Sampler(const SamplerOptions& options);

  /// Steps that an epoch takes, the last one included that may be smaller.
  [[nodiscard]] std::int64_t steps_per_epoch() const noexcept;

  /// Samples of all replicas together in this step of any epoch, at least 1. `step` counts from 0
  /// in each epoch; one outside it is a ValueError.
  [[nodiscard]] std::int64_t global_batch(std::int64_t step) const;

  /// The samples of one replica in one step of an epoch, in order; none if there are fewer than
  /// replicas. A negative epoch, a step that the epoch has not and a replica that the job has not
  /// are ValueErrors.
  [[nodiscard]] std::vector<std::int64_t> indices(std::int64_t epoch, std::int64_t step,
                                                  std::int64_t replica);

 private:
  SamplerOptions options_;
  std::int64_t full_batch_;          // of all replicas, in every step but the last
  std::int64_t order_epoch_ = -1;    // the epoch that order_ is of; -1 before the first
  std::vector<std::int64_t> order_;  // a permutation of 0 … size-1
};

}  // namespace lockstep
