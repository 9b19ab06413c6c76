#pragma once

#include <cstdint>

#include "framework/base/non_copyable.h"
#include "framework/timeline/recorder.h"

namespace lockstep {

/// What a loop of one's own does that no trainer, loader or checkpoint of Lockstep's records.
enum class Phase : std::uint8_t {
  step,  ///< one, around the others; ZeroTrainer, DataParallel and ShardedOptimizer record theirs
  data,
  forward,  ///< with its loss
  backward,
  update,
  evaluation,
  checkpoint
};

/// While this lives, the calling replica is in that phase: for warnings of stalls, traces, their
/// summaries and what a failed job leaves. It costs less than a microsecond. Outside of a job's
/// replicas, and in threads of maps, it does nothing. One within another, on one thread.
class RecordedPhase : private NonCopyable {
 public:
  /// `step` is the number of the step, from 1. By default the one that goes on; for Phase::step
  /// the one after the last.
  explicit RecordedPhase(Phase phase, std::int64_t step = 0) noexcept;

 private:
  timeline::RecordedSpan span_;
};

}  // namespace lockstep
