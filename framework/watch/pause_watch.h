#pragma once

#include <cstdint>

#include "framework/base/non_copyable.h"
#include "framework/base/range.h"
#include "framework/watch/recorder.h"

namespace lockstep::watch {

/// How long this machine has slept since it started, in nanoseconds: recorder_now() leaves it out.
[[nodiscard]] std::uint64_t time_asleep() noexcept;

/// Records when a host's replicas stood still together with their launcher, which then could not
/// see it: stopped by a signal (Ctrl-Z), frozen, or on a machine that slept. For one thread.
class PauseWatch : private NonCopyable {
 public:
  /// Shorter ones are not told from a busy machine.
  static constexpr std::uint64_t kShortest = 1'000'000'000;

  PauseWatch(Recorder& recorder, const Range& replicas)
      : recorder_(recorder), replicas_(replicas) {}

  /// The launcher has nothing to do and waits from now on: what it has done since the last look,
  /// however long, was no pause.
  void begin_wait(std::uint64_t now = recorder_now()) { last_ = now; }
  /// Call it when the launcher is back, much more often than every kShortest. After a longer gap
  /// each replica gets a pause that has recorded nothing for so long in it: from its last word
  /// before to its first one after. A machine's sleep is a pause without length, whose name has it.
  void look(std::uint64_t now = recorder_now(), std::uint64_t asleep = time_asleep());

 private:
  void add(std::int64_t replica, std::uint64_t begin, std::uint64_t end, std::uint64_t asleep);

  Recorder& recorder_;
  Range replicas_;
  std::uint64_t last_ = recorder_now();
  std::uint64_t asleep_ = time_asleep();
};

}  // namespace lockstep::watch
