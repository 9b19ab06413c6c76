#include "framework/training/zero_options.h"

#include "framework/base/text.h"
#include "framework/training/flat_gradients.h"

namespace lockstep {

void check_options(const ZeroOptions& options) {
  require(options.stage >= 0 && options.stage <= 3, "ZeRO: stage is ", options.stage,
          "; it must be 0, 1, 2 or 3");
  require(options.bucket_mb > 0 && options.bucket_mb <= 1e6, "ZeRO: bucket_mb is ",
          options.bucket_mb, "; it must be above 0 and at most 1000000");
  require(options.accumulate >= 1, "ZeRO: accumulate is ", options.accumulate,
          "; it must be at least 1");
  require(!options.clip_norm || *options.clip_norm > 0, "ZeRO: clip_norm must be above 0");
  require(!options.clip_value || *options.clip_value > 0, "ZeRO: clip_value must be above 0");
}

FlatGradientOptions gradient_options(const ZeroOptions& options, const FlatLayout& layout,
                                     bool overlaps, bool take_turns, bool is_common) {
  FlatGradientOptions how{
      .way = options.stage == 0 ? GradientWay::kept_whole : GradientWay::kept,
      .overlap = options.overlap,
      .reduces_every_microbatch = options.reduce_every_microbatch && options.accumulate > 1,
      .compression = options.compression};
  if (take_turns && options.compression == Compression::none && (options.stage > 0 || is_common)) {
    how.way = GradientWay::summed_in_turns;
    return how;
  }
  if (options.stage < 2 || (options.accumulate > 1 && !how.reduces_every_microbatch)) return how;
  FlatGradientOptions staged = how;
  staged.way = GradientWay::staged;
  const auto bytes = [&](const FlatGradientOptions& each) {
    return FlatGradients::predicted_use(layout, each, overlaps).total();
  };
  return bytes(staged) < bytes(how) ? staged : how;
}

}  // namespace lockstep
