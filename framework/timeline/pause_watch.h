#pragma once

#include <cstdint>

#include "framework/base/non_copyable.h"
#include "framework/base/range.h"
#include "framework/timeline/recorder.h"

namespace lockstep::timeline {

/// Returns the nanoseconds that this machine has slept since its start: recorder_now() lacks them.
[[nodiscard]] std::uint64_t time_asleep() noexcept;

/// A recorder of times when a signal (Ctrl-Z), a freezer or the machine's sleep stopped a host's
/// replicas together with their launcher, which could not see it. For one thread.
class PauseWatch : private NonCopyable {
 public:
  /// The shortest pause: a shorter one looks like a busy machine.
  static constexpr std::uint64_t kShortest = 1'000'000'000;

  PauseWatch(Recorder& recorder, const Range& replicas)
      : recorder_(recorder), replicas_(replicas) {}

  /// Tells that the launcher has nothing to do and waits from now on: its work since the last look,
  /// however long, was no pause.
  void begin_wait(std::uint64_t now = recorder_now()) { last_ = now; }
  /// Looks for pauses. Call it when the launcher is back, much more often than every kShortest. In
  /// a longer gap, a replica without a record for so long gets a pause, from its last record before
  /// to its first one after. A machine's sleep is a pause without length, whose name tells it.
  void look(std::uint64_t now = recorder_now(), std::uint64_t asleep = time_asleep());

 private:
  void add(std::int64_t replica, std::uint64_t begin, std::uint64_t end, std::uint64_t asleep);

  Recorder& recorder_;
  Range replicas_;
  std::uint64_t last_ = recorder_now();
  std::uint64_t asleep_ = time_asleep();
};

}  // namespace lockstep::timeline
