#include "trainers/bench/step_parts.h"

#include <utility>

namespace lockstep::bench {

void StepClock::lap(StepPart part) {
  const auto now = Clock::now();
  sums_[static_cast<std::size_t>(part)] += std::chrono::duration<double>(now - last_).count();
  last_ = now;
}

StepParts StepClock::take() {
  return std::exchange(sums_, StepParts{});
}

}  // namespace lockstep::bench
