#pragma once

#include <cstdint>

#include "framework/base/range.h"
#include "framework/training/zero_options.h"

namespace torch::nn {
class Module;
}

namespace lockstep {

/// Bytes by purpose.
struct MemoryUse {
  std::int64_t parameters = 0;
  std::int64_t gradients = 0;
  std::int64_t optimizer_state = 0;
  std::int64_t communication = 0;  ///< staging of buckets, gathered blocks, what compression keeps
  std::int64_t checkpoint = 0;     ///< the copy that a CheckpointSaver keeps, from its first save
  /// The largest parameter that was on the meta device, whole: they are made one at a time, before
  /// the first step. Not part of total().
  std::int64_t initialization = 0;
  /// How much of `parameters` is in a copy that replicas hold together.
  std::int64_t shared_parameters = 0;
  std::int64_t holders = 1;  ///< how many replicas hold that copy

  [[nodiscard]] std::int64_t total() const noexcept {
    return parameters + gradients + optimizer_state + communication + checkpoint;
  }
  /// The most while parameters are made and loaded.
  [[nodiscard]] std::int64_t at_start() const noexcept {
    return parameters + gradients + optimizer_state + communication + initialization;
  }
  bool operator==(const MemoryUse&) const = default;
};

/// The memory of the replicas of a host.
struct HostMemoryUse {
  MemoryUse largest;  ///< in each category, the most that any replica has
  MemoryUse host;     ///< of all replicas; shared memory counts once
};

/// How the replicas of an axis are placed.
struct ReplicaPlacement {
  std::int64_t replicas = 1;
  /// How many replicas run at once. Each worker has its shard() of them, which take turns. 0: all.
  std::int64_t workers = 0;
  /// Those of this host, and how many of them run at once; of size 0: all of `replicas`.
  Range here{0, 0};
  std::int64_t workers_here = 0;
  /// Replicas of a host share memory, and hold whole parameters once. Otherwise (over Gloo) those
  /// of a worker do.
  bool shares_memory = true;
  /// For the sizes of buckets, where these are chosen by it: ZeroTrainer::link_cost() of a trainer.
  LinkCost link{};
};

/// Predicts the memory of ZeroTrainer's buffers before any is allocated: `module` may be on the
/// meta device. For Ψ float32 parameters, Adam and one microbatch it is 16Ψ at stage 0, 8Ψ + 8Ψ/N
/// at 1, 4Ψ + 12Ψ/N at 2 and 16Ψ/N at 3, without padding and communication (Rajbhandari et al.,
/// arXiv:1910.02054, for all in float32). Replicas that share memory hold 4Ψ of it once, and share
/// the update at stage 0, too. Replicas that take turns have 4Ψ/N and a part of their worker's
/// sets of gradients (WorkerGradientSums), 4Ψ each. A model with collectives in its backward takes
/// one set a replica. This is predicted for gathered blocks, not for the model's own collectives.
/// Averages (ema_decay) take 4Ψ/N more of optimizer_state at all stages, without the whole ones
/// that ZeroTrainer::averaged_parameters() shows. To start from a checkpoint takes no more than to
/// start without. `checkpoint` is 0. ValueError for more than 2^46 parameters.
[[nodiscard]] HostMemoryUse predicted_memory(torch::nn::Module& module, const ZeroOptions& options,
                                             const ReplicaPlacement& placement);

/// Predicts what a CheckpointSaver of the trainer keeps: `checkpoint` alone.
[[nodiscard]] HostMemoryUse predicted_checkpoint(torch::nn::Module& module,
                                                 const ZeroOptions& options,
                                                 const ReplicaPlacement& placement);

}  // namespace lockstep
