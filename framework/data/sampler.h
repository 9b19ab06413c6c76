#pragma once

#include <algorithm>
#include <cstdint>
#include <vector>

#include "framework/data/index_list.h"

namespace lockstep {

struct SamplerOptions {
  std::int64_t size = 0;        ///< samples in the dataset
  std::int64_t batch_size = 1;  ///< samples a replica and step
  std::int64_t replicas = 1;
  std::uint64_t seed = 0;
  bool shuffle = true;     ///< without: the dataset's own order in every epoch
  bool drop_last = false;  ///< leaves out what an epoch's end has too few of for a full step
};

/// Which samples each replica takes in each step. A run's position is the number of samples that
/// all replicas together have taken since it began: position / size is the epoch, position % size
/// the place in the epoch's order. The order is a pure function of (seed, epoch, size), the same on
/// every replica, machine and run. A step takes the next batch_size · replicas samples, the global
/// batch, and cuts them over the replicas with shard(). It ends where the epoch does: an epoch's
/// last global batch may be smaller, its shards may then differ by one, and some are empty if there
/// are fewer samples than replicas. So every epoch uses every sample exactly once, even if the
/// batch size or the number of replicas changes at some position.
///
/// With drop_last every step is of batch_size · replicas samples. Where less is left of an epoch,
/// the step is the first of the next one; its samples come after those that were left out, which
/// count in positions. Source: drop_last of PyTorch's DataLoader.
///
/// One thread at a time, since it keeps the last epoch's order. Each replica owns its sampler.
class Sampler {
 public:
  /// Throws ValueError unless `size`, `batch_size`, `replicas` and batch_size · replicas are at
  /// least 1 and fit in an int64, and for drop_last where an epoch has too few samples for a step.
  explicit Sampler(const SamplerOptions& options);

  /// What a sampler keeps once it was asked for samples: an epoch's order, if it shuffles.
  [[nodiscard]] static std::int64_t bytes(const SamplerOptions& options) noexcept {
    return options.shuffle ? data::IndexList::bytes(options.size) : 0;
  }

  /// Steps in an epoch that is taken from its beginning, with the last one, which may be smaller.
  [[nodiscard]] std::int64_t steps_per_epoch() const noexcept {
    return steps_inside(0, options_.size);
  }

  /// The position at which an epoch begins and the one before it ends. ValueError if `epoch` is
  /// negative or the position does not fit in an int64.
  [[nodiscard]] std::int64_t start_of_epoch(std::int64_t epoch) const;

  /// Steps that lead from `position` to `end` or, where `end` is inside of a step, beyond it; 0 if
  /// they are the same. ValueError unless 0 <= position <= end.
  [[nodiscard]] std::int64_t steps_between(std::int64_t position, std::int64_t end) const;

  /// Where the step at any position begins: there, or with drop_last perhaps where the next epoch
  /// does. ValueError for a negative position.
  [[nodiscard]] std::int64_t start_of_step(std::int64_t position) const;

  /// Samples of all replicas together in the step at any position: a full batch or what is left of
  /// the epoch, at least 1. ValueError for a negative position.
  [[nodiscard]] std::int64_t global_batch(std::int64_t position) const {
    return std::min(full_batch_, options_.size - start_of_step(position) % options_.size);
  }

  /// The position after the step at any position. ValueError for a negative one.
  [[nodiscard]] std::int64_t end_of_step(std::int64_t position) const {
    return start_of_step(position) + global_batch(position);
  }

  /// The samples of one replica in the step at any position, in order. None if the step has too few
  /// for this replica. ValueError for a negative position, or a replica that does not exist.
  [[nodiscard]] std::vector<std::int64_t> indices(std::int64_t position, std::int64_t replica);

 private:
  [[nodiscard]] std::int64_t steps_inside(std::int64_t first, std::int64_t last) const noexcept;

  SamplerOptions options_;
  std::int64_t full_batch_;        // of all replicas, unless less is left of the epoch
  std::int64_t order_epoch_ = -1;  // the epoch that order_ is of; -1 before the first
  data::IndexList order_;          // a permutation of 0 … size-1, if samples are shuffled
};

}  // namespace lockstep
