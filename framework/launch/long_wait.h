#pragma once

#include <chrono>

namespace lockstep::launcher {

/// A wait that tries something again and again, and says once what is missing if it takes long. One
/// thread.
class LongWait {
 public:
  using Clock = std::chrono::steady_clock;
  /// A shorter wait is not worth a line.
  static constexpr std::chrono::milliseconds kMoment{2000};

  /// Returns true, once at most, when it is time to say so.
  [[nodiscard]] bool is_to_tell() {
    if (is_told_ || Clock::now() < begin_ + kMoment) return false;
    return is_told_ = true;
  }

 private:
  const Clock::time_point begin_ = Clock::now();
  bool is_told_ = false;
};

}  // namespace lockstep::launcher
