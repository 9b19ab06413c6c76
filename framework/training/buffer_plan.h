#pragma once

#include <cstddef>
#include <cstdint>
#include <vector>

#include <ATen/core/Tensor.h>

#include "framework/base/range.h"
#include "framework/training/memory_prediction.h"
#include "framework/training/zero_options.h"
#include "framework/tree/flat_layout.h"

namespace lockstep::training {

/// Which elements a replica updates. all: every element of its copy; replicas that hold a copy
/// together divide it among themselves. own_shard: its shard of each bucket. own_group: for replica
/// r the buckets of group r + 1.
enum class ParameterUpdates { all, own_shard, own_group };

/// Where a replica keeps its own gradients until they are reduced, and its part of the means.
enum class GradientWay {
  kept_whole,       ///< in memory of their own; the replica gets whole means
  kept,             ///< in memory of their own; here and below it gets its shard of each mean
  staged,           ///< each bucket's in one of a few staging buffers, while it is reduced
  summed_in_turns,  ///< in WorkerGradientSums, which replicas that take turns share
};

/// What decides which buffers there are.
struct BufferOptions {
  ParameterUpdates updates = ParameterUpdates::all;
  GradientWay way = GradientWay::kept_whole;
  /// Whether kept gradients are reduced in the midst of the backward. Staged ones always are, those
  /// summed in turns never.
  Overlap overlap = Overlap::automatic;
  /// Whether each microbatch's gradients are reduced, and the means summed. Otherwise each replica
  /// sums its own gradients first, which is impossible for staged ones.
  bool reduces_every_microbatch = false;
  Compression compression = Compression::none;  ///< not of what is summed in turns
  /// Whether what compression had left out stays as it was until the step's end.
  bool keeps_residuals = false;
  std::int64_t states = 0;  ///< tensors of the optimizer's state
  bool averages = false;    ///< whether AveragedParameters are kept
};

/// Flat tensors of one size.
struct PlannedTensors {
  std::int64_t count = 0;
  std::int64_t size = 0;  ///< elements of each
  at::ScalarType dtype = at::kFloat;

  [[nodiscard]] std::int64_t bytes() const {
    return count * size * static_cast<std::int64_t>(c10::elementSize(dtype));
  }
  /// One of them, of zeros; undefined if there are none.
  [[nodiscard]] at::Tensor zeros() const;
};

/// The dtype in which parameters of a dtype are updated: float32 for half types.
[[nodiscard]] inline at::ScalarType master_dtype(at::ScalarType dtype) {
  return dtype == at::kBFloat16 || dtype == at::kHalf ? at::kFloat : dtype;
}
/// The dtype of a bucket's gradients. Half types are summed and sent in float32.
[[nodiscard]] inline at::ScalarType gradient_dtype(const tree::FlatBucket& bucket) {
  return master_dtype(bucket.dtype);
}

/// What a replica keeps for a bucket.
struct BucketPlan {
  bool is_cut;                ///< the parameters are kept in shards
  Range shard;                ///< the replica's own
  Range mean;                 ///< the part of the mean gradients that the replica gets
  PlannedTensors parameters;  ///< all of them, or the own shard
  PlannedTensors gradients;   ///< its own. What is summed in turns is in a set of the worker's.
  PlannedTensors reduced;     ///< what one reduction gives, where that is no part of its own
  PlannedTensors sum;         ///< of the microbatches' means
  PlannedTensors residuals;   ///< what compression leaves out: so far, and with this step
  PlannedTensors averages;    ///< of the parameters
  /// For each element that the replica updates: a master of a half type, the optimizer's state.
  PlannedTensors state;
};

/// Which buffers a trainer keeps on a replica for parameters in flat buckets: those who keep them
/// take their sizes from here, and memory predictions their sum.
struct BufferPlan {
  /// `overlaps`: whether reductions go on beside the backward.
  BufferPlan(tree::FlatLayout its_layout, const BufferOptions& its_options,
             std::int64_t its_replica, bool overlaps);

  tree::FlatLayout layout;
  BufferOptions options;
  std::int64_t replica;
  std::vector<BucketPlan> buckets;
  /// How many buckets are reduced at one time. Where each has memory of its own, the backward never
  /// waits for the network.
  std::size_t at_once;
  PlannedTensors staging;  ///< bytes in which staged gradients are reduced …
  PlannedTensors wire;     ///< … and in which compressed ones travel

  /// The parts of a bucket that the replica updates, if the `holders`, itself among them, hold one
  /// copy of it: its shard and, if it updates `all`, its parts of shards whose replicas hold other
  /// copies. Ascending. Not with own_group.
  [[nodiscard]] std::vector<Range> updated(std::size_t bucket,
                                           const std::vector<std::int64_t>& holders) const;
  /// The sum, if the `holders` hold one copy of what is not cut. Without gathered blocks and sets
  /// of gradients.
  [[nodiscard]] MemoryUse use(const std::vector<std::int64_t>& holders) const;
  /// Bytes of two blocks, the largest there are: one is gathered beside the one that runs.
  [[nodiscard]] std::int64_t gathered_bytes() const;
  /// Bytes of all own gradients: a set of WorkerGradientSums.
  [[nodiscard]] std::int64_t set_bytes() const;
  /// Bytes of the replica's pieces of a checkpoint: parameters, state, averages and residuals.
  [[nodiscard]] std::int64_t saved_bytes() const;
};

/// What a stage of ZeRO depends on beside its options.
struct ReplicaFacts {
  std::int64_t replica;
  bool overlaps;     ///< reductions go on beside the backward
  bool takes_turns;  ///< a worker has several replicas
  bool is_common;    ///< all replicas hold the parameters once
};

/// What each stage of ZeRO does with its buffers:
///
///   | stage | parameters | updates          | mean gradients | own gradients                    |
///   |-------|------------|------------------|----------------|----------------------------------|
///   | 0     | whole      | all of them (1)  | all of them    | kept                             |
///   | 1     | whole      | the own shard    | the own shard  | kept                             |
///   | 2     | whole      | the own shard    | the own shard  | staged, where that takes less (2)|
///   | 3     | in shards  | the own shard    | the own shard  | staged, where that takes less (2)|
///
/// (1) Replicas that share memory hold whole parameters once. At stage 0 they share the update: if
///     all replicas do, each updates its shard. Then nothing is in shards at stage 3, either: the
///     layout has no groups.
/// (2) Not where microbatches are summed before they are reduced.
/// Replicas that take turns sum their gradients as they come, from stage 1 on or where all hold the
/// parameters once. Compressed gradients are never summed so.
[[nodiscard]] BufferPlan plan_of_stage(const ZeroOptions& options, const tree::FlatLayout& layout,
                                       const ReplicaFacts& facts);

}  // namespace lockstep::training
