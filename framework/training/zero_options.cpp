#include "framework/training/zero_options.h"

namespace lockstep {

void check_options(const ZeroOptions& options) {
  keys::check("ZeRO: stage", options.stage, kStageRule);
  keys::check("ZeRO: bucket_mb", options.bucket_mb, kBucketMbRule);
  keys::check("ZeRO: accumulate", options.accumulate, kAccumulateRule);
  keys::check("ZeRO: ema_decay", options.ema_decay, kEmaDecayRule);
  keys::check("ZeRO: clip_norm", options.clip_norm, kClipRule);
  keys::check("ZeRO: clip_value", options.clip_value, kClipRule);
}

}  // namespace lockstep
