#include "framework/training/zero_options.h"

#include <limits>

namespace lockstep {
namespace {

// Infinity clips nothing.
void check_clip(const std::string& option, const std::optional<double>& clip) {
  if (clip != std::numeric_limits<double>::infinity()) keys::check(option, clip, kClipRule);
}

}  // namespace

void check_options(const ZeroOptions& options) {
  keys::check("ZeRO: stage", options.stage, kStageRule);
  keys::check("ZeRO: bucket_mb", options.bucket_mb, kBucketMbRule);
  keys::check("ZeRO: accumulate", options.accumulate, kAccumulateRule);
  keys::check("ZeRO: ema_decay", options.ema_decay, kEmaDecayRule);
  check_clip("ZeRO: clip_norm", options.clip_norm);
  check_clip("ZeRO: clip_value", options.clip_value);
}

}  // namespace lockstep
