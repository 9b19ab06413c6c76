#pragma once

#include <algorithm>
#include <chrono>

namespace lockstep {

/// How long something has been waited for while this process ran, told by looks at it. They are
/// much less than kLongestGap apart; a longer gap was a pause of the whole process (Ctrl-Z, a
/// freezer), in which nobody can come, and counts as no more than that.
class Waited {
 public:
  using Clock = std::chrono::steady_clock;
  static constexpr std::chrono::milliseconds kLongestGap{200};

  [[nodiscard]] static constexpr Clock::time_point never() noexcept {
    return Clock::time_point::min();
  }

  explicit Waited(Clock::time_point begin = Clock::now()) noexcept : last_(begin) {}

  /// Looks: how long by now. Nobody was late before `late_from`, if that came after the last look.
  Clock::duration look(Clock::time_point late_from = never(),
                       Clock::time_point now = Clock::now()) noexcept {
    const Clock::duration gap = std::min<Clock::duration>(now - last_, kLongestGap);
    whole_ += gap;
    late_ = late_from > last_ ? std::min<Clock::duration>(now - late_from, gap) : late_ + gap;
    last_ = now;
    return whole_;
  }
  /// How long the others were late, at the last look.
  [[nodiscard]] Clock::duration late() const noexcept { return late_; }

 private:
  Clock::time_point last_;
  Clock::duration whole_{0};
  Clock::duration late_{0};
};

}  // namespace lockstep
