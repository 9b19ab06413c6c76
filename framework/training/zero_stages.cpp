#include "framework/training/zero_stages.h"

namespace lockstep::training {

FlatGradientOptions gradient_options(const ZeroOptions& options, const tree::FlatLayout& layout,
                                     bool overlaps, bool take_turns, bool is_common) {
  FlatGradientOptions how{
      .way = options.stage == 0 ? GradientWay::kept_whole : GradientWay::kept,
      .overlap = options.overlap,
      .reduces_every_microbatch = options.reduce_every_microbatch && options.accumulate > 1,
      .compression = options.compression,
      .keeps_residuals = options.keeps_last_step};
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

}  // namespace lockstep::training
