#pragma once

#include <array>
#include <chrono>
#include <cstddef>

namespace lockstep::bench {

/// What a training step consists of. Communication is what a replica waits for others or moves
/// bytes to them; where it is in the midst of other parts, only exposed_parts() (training_report.h)
/// tells it from these.
enum class StepPart : std::size_t { data, forward, backward, communication, update };

inline constexpr std::array<const char*, 5> kStepPartNames{"data", "forward", "backward",
                                                           "communication", "update"};

/// Seconds of each part.
using StepParts = std::array<double, kStepPartNames.size()>;

/// The way to train that is what every step needs with nothing else: forward, backward, and the
/// update of the replica's share of the parameters.
inline constexpr const char* kAlone = "alone";

/// Where a step's time goes: each lap counts for one part.
class StepClock {
 public:
  void start() { last_ = Clock::now(); }
  /// What has passed since start() or the last lap was for `part`.
  void lap(StepPart part);
  /// The sums since the last take().
  [[nodiscard]] StepParts take();

 private:
  using Clock = std::chrono::steady_clock;
  Clock::time_point last_;
  StepParts sums_{};
};

}  // namespace lockstep::bench
