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
/// epoch, size), the same on every replica, machine and run. Step s takes the next batch_size ·
/// replicas samples, the global batch, and cuts them over the replicas with shard(). An epoch uses
/// every sample exactly once. Only the last step's global batch may be smaller: its shards may
/// differ by one, and some are empty if there are fewer samples than replicas.
///
/// One thread at a time, since it keeps the last epoch's order. Each replica owns its sampler.
class Sampler {
 public:
  /// Throws ValueError unless `size`, `batch_size`, `replicas` and their products are at least 1
  /// and fit in an int64.
  explicit Sampler(const SamplerOptions& options);

  /// Steps in an epoch, including the last one, which may be smaller.
  [[nodiscard]] std::int64_t steps_per_epoch() const noexcept;

  /// Samples of all replicas together in this step of any epoch, at least 1. `step` counts from 0
  /// in each epoch. ValueError if the epoch has no such step.
  [[nodiscard]] std::int64_t global_batch(std::int64_t step) const;

  /// The samples of one replica in one step of an epoch, in order. None if the step has too few for
  /// this replica. ValueError for a negative epoch, or for a step or replica that does not exist.
  [[nodiscard]] std::vector<std::int64_t> indices(std::int64_t epoch, std::int64_t step,
                                                  std::int64_t replica);

 private:
  SamplerOptions options_;
  std::int64_t full_batch_;          // of all replicas, in every step but the last
  std::int64_t order_epoch_ = -1;    // the epoch that order_ is of; -1 before the first
  std::vector<std::int64_t> order_;  // a permutation of 0 … size-1
};

}  // namespace lockstep
