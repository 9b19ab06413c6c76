#pragma once

#include "framework/training/flat_gradients.h"
#include "framework/training/flat_parameters.h"
#include "framework/training/zero_options.h"
#include "framework/tree/flat_layout.h"

namespace lockstep::training {

// What each stage of ZeRO does with its buffers, for ZeroTrainer and for the memory prediction:
//
//   | stage | parameters | updates          | mean gradients | own gradients                    |
//   |-------|------------|------------------|----------------|----------------------------------|
//   | 0     | whole      | all of them (1)  | all of them    | kept                             |
//   | 1     | whole      | the own shard    | the own shard  | kept                             |
//   | 2     | whole      | the own shard    | the own shard  | staged, where that takes less (2)|
//   | 3     | in shards  | the own shard    | the own shard  | staged, where that takes less (2)|
//
// (1) Replicas that share memory hold whole parameters once. At stage 0 they share the update: if
//     all replicas do, each updates its shard. Then nothing is in shards at stage 3, either.
// (2) Not where microbatches are summed before they are reduced.
// Replicas that take turns sum their gradients as they come, from stage 1 on or where all hold the
// parameters once. Compressed gradients are never summed so.

/// Whether blocks' parameters are cut into shards. `is_common()` says whether all replicas hold the
/// parameters once; it is called at stage 3 alone.
[[nodiscard]] inline bool cuts_parameters(int stage, const auto& is_common) {
  return stage == 3 && !is_common();
}

/// What each replica updates.
[[nodiscard]] inline ParameterUpdates parameter_updates(int stage) {
  return stage == 0 ? ParameterUpdates::all : ParameterUpdates::own_shard;
}

/// `overlaps`: reductions go on beside the backward. `take_turns`: a worker has several replicas.
/// `is_common`: all replicas hold the parameters once.
[[nodiscard]] FlatGradientOptions gradient_options(const ZeroOptions& options,
                                                   const tree::FlatLayout& layout, bool overlaps,
                                                   bool take_turns, bool is_common);

}  // namespace lockstep::training
