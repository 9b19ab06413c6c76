#pragma once

#include <cstdint>
#include <map>
#include <optional>
#include <vector>

namespace lockstep::watch {

/// What of a step tells who is slow; in seconds.
struct StepPace {
  std::map<int, double> own{};  ///< by replica, its own work: all but communication
  double total = 0;             ///< of the step
};

/// A replica that makes steps longer, and what that costs.
struct SlowReplica {
  int replica = 0;
  /// The median step is so much shorter if the replica does no more than the slowest of the others.
  double seconds_a_step = 0;
  double share = 0;        ///< the same as a part of the median step
  std::int64_t steps = 0;  ///< in which it is the slowest
};

/// The replica that makes the median step longer by more than a tenth, and is the slowest in more
/// than two thirds of the steps. None if there is no such, or one replica alone. Medians: what a
/// busy machine does to a few steps is nobody's cost. Pure.
[[nodiscard]] std::optional<SlowReplica> slow_replica(const std::vector<StepPace>& steps);

/// Of at least one value; of an even number the greater one in the middle.
[[nodiscard]] double median_of(std::vector<double> values);

}  // namespace lockstep::watch
