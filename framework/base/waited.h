#pragma once

#include <algorithm>
#include <atomic>
#include <chrono>

#include "framework/base/word.h"

namespace lockstep {

/// A clock for waits that leaves out pauses of the process (Ctrl-Z, a freezer). The waiter calls
/// look() again and again, much more often than every kLongestGap; a longer gap between two calls
/// was a pause and counts as kLongestGap. The clock stands still while the word `held_up` is not 0:
/// a replica's print then waits for its reader.
class Waited {
 public:
  using Clock = std::chrono::steady_clock;
  static constexpr std::chrono::milliseconds kLongestGap{200};
  inline static std::atomic<const Word*> held_up{nullptr};

  [[nodiscard]] static constexpr Clock::time_point never() noexcept {
    return Clock::time_point::min();
  }

  /// With `counts_all` the clock goes on while `held_up` is not 0, too.
  explicit Waited(Clock::time_point begin = Clock::now(), bool counts_all = false) noexcept
      : last_(begin), counts_all_(counts_all) {}

  /// Returns how long the wait has lasted. If `late_from` is later than the last look, late()
  /// counts from there.
  Clock::duration look(Clock::time_point late_from = never(),
                       Clock::time_point now = Clock::now()) noexcept {
    const Word* const held = counts_all_ ? nullptr : held_up.load();
    const bool is_held = held != nullptr && held->load() != 0;
    const Clock::duration gap =
        is_held ? Clock::duration{} : std::min<Clock::duration>(now - last_, kLongestGap);
    whole_ += gap;
    late_ = late_from > last_ ? std::min<Clock::duration>(now - late_from, gap) : late_ + gap;
    last_ = now;
    return whole_;
  }
  /// Returns how long the others were late, at the last look.
  [[nodiscard]] Clock::duration late() const noexcept { return late_; }

 private:
  Clock::time_point last_;
  bool counts_all_;
  Clock::duration whole_{0};
  Clock::duration late_{0};
};

}  // namespace lockstep
