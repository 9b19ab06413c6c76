#include "framework/training/zero_options.h"

#include "framework/base/text.h"

namespace lockstep {

void check_options(const ZeroOptions& options) {
  require(options.stage >= 0 && options.stage <= 3, "ZeRO: stage is ", options.stage,
          "; it must be 0, 1, 2 or 3");
  require(!options.bucket_mb || is_bucket_mb(*options.bucket_mb), "ZeRO: bucket_mb is ",
          options.bucket_mb.value_or(0), "; it must be above 0 and at most 1000000");
  require(options.accumulate >= 1, "ZeRO: accumulate is ", options.accumulate,
          "; it must be at least 1");
  require(!options.ema_decay || (*options.ema_decay >= 0 && *options.ema_decay < 1),
          "ZeRO: ema_decay is ", options.ema_decay.value_or(0), "; it must be in [0, 1)");
  require(!options.clip_norm || *options.clip_norm > 0, "ZeRO: clip_norm must be above 0");
  require(!options.clip_value || *options.clip_value > 0, "ZeRO: clip_value must be above 0");
}

}  // namespace lockstep
