#pragma once

#include <cstdint>
#include <optional>

#include "framework/axes/axis_names.h"
#include "framework/optim/optimizer_options.h"
#include "framework/training/averaging_options.h"

namespace lockstep {

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
  /// Reduce after each backward. This saves memory at stages 2 and 3 and sends `accumulate` times
  /// the bytes. Otherwise each replica sums its own gradients first.
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

}  // namespace lockstep
