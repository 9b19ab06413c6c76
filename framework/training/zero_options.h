#pragma once

#include <cstdint>
#include <optional>

#include "framework/axes/axis_names.h"
#include "framework/optim/optimizer_options.h"
#include "framework/training/averaging_options.h"

namespace lockstep {

struct FlatGradientOptions;
class FlatLayout;

/// What happens when a gradient is infinite or not a number: an Error that names its parameter, or
/// a step that changes nothing.
enum class NonFinite { stop, skip };

struct ZeroOptions {
  AxisNames axis_name = "data";
  /// What is cut into shards, of which each replica holds one: 0 nothing; 1 the optimizer's state;
  /// 2 also the gradients; 3 also the parameters.
  int stage = 0;
  double bucket_mb = 25;
  Overlap overlap = Overlap::automatic;
  /// Backwards a step.
  std::int64_t accumulate = 1;
  /// Reduce after each of them, which saves memory at stages 2 and 3 and costs as many times the
  /// bytes; otherwise each replica sums its own first.
  bool reduce_every_microbatch = false;
  Compression compression = Compression::none;
  OptimizerOptions optimizer{};
  std::optional<double> clip_norm{};   ///< the largest global L2 norm of the gradients
  std::optional<double> clip_value{};  ///< the largest magnitude of a gradient's value
  NonFinite non_finite = NonFinite::stop;
  Buffers buffers = Buffers::mean;
  std::uint64_t seed = 0;  ///< of what lockstep::Dropout drops
  Randomness randomness = Randomness::warn;
};

/// Throws ValueError, naming it, for a number out of range.
void check_options(const ZeroOptions& options);

// What each stage of ZeRO does with its buffers:
//
//   | stage | parameters | updates          | mean gradients | own gradients                    |
//   |-------|------------|------------------|----------------|----------------------------------|
//   | 0     | whole      | all of them (1)  | all of them    | kept                             |
//   | 1     | whole      | the own shard    | the own shard  | kept                             |
//   | 2     | whole      | the own shard    | the own shard  | staged, where that takes less (2)|
//   | 3     | in shards  | the own shard    | the own shard  | staged, where that takes less (2)|
//
// (1) Replicas that share memory hold the parameters once, at every stage: then each updates its
//     shard at stage 0, too, and nothing is in shards at stage 3.
// (2) Not where microbatches are summed before they are reduced.
// Replicas that take turns sum their gradients as they come, from stage 1 on and where they hold
// the parameters once. Compressed gradients are never summed so.

/// `overlaps`: reductions go on beside the backward. `take_turns`: a worker has several replicas.
/// `is_common`: replicas hold the parameters once.
[[nodiscard]] FlatGradientOptions gradient_options(const ZeroOptions& options,
                                                   const FlatLayout& layout, bool overlaps,
                                                   bool take_turns, bool is_common);

}  // namespace lockstep
