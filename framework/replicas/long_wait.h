#pragma once

#include <chrono>

namespace lockstep::replicas {

/// A wait for something that is tried again and again: if it takes long, who waits says once what
/// is missing. One thread.
class LongWait {
 public:
  using Clock = std::chrono::steady_clock;
  /// A wait that is shorter is not worth a line.
  static constexpr std::chrono::milliseconds kMoment{2000};

  /// Whether it is time to say so: true at most once.
  [[nodiscard]] bool is_to_tell() {
    if (is_told_ || Clock::now() < begin_ + kMoment) return false;
    return is_told_ = true;
  }

 private:
  const Clock::time_point begin_ = Clock::now();
  bool is_told_ = false;
};

}  // namespace lockstep::replicas
