#pragma once

#include <cstdint>
#include <map>
#include <optional>
#include <span>
#include <vector>

#include "framework/watch/recorder.h"

namespace lockstep::watch {

/// What of a step tells who is slow; in seconds.
struct StepPace {
  std::map<int, double> own{};  ///< by replica, its own work: all but communication
  double total = 0;             ///< of the step
  double exposed = 0;           ///< mean of the replicas, in calls, when all had come to them
  double hidden = 0;            ///< likewise, in calls beside their other work
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

/// The part of the replicas' time in which they would wait for the slowest of each step; 0 without
/// any steps. Pure.
[[nodiscard]] double waiting_share(const std::vector<StepPace>& steps);

/// What a replica does in a step, in seconds.
struct ReplicaWork {
  double own = 0;      ///< all but communication
  double waiting = 0;  ///< for the slowest one
};

/// By replica, of steps that have the same ones: medians, and what each would wait. Pure.
[[nodiscard]] std::map<int, ReplicaWork> replica_work(std::span<const StepPace> steps);

/// How long a replica's own work takes from step to step, by what it has recorded.
class OwnWork {
 public:
  /// Seconds since the last call, without those in which `track` was in calls; 0 at first, and
  /// without a track. A call reads what was recorded since then: microseconds. It may be in none
  /// itself. For one thread.
  [[nodiscard]] double next(const Recorder::Track* track);

 private:
  std::uint64_t last_ = 0;   // when it was asked
  std::uint64_t after_ = 0;  // the last span that had begun then
};

/// Of at least one value; of an even number the greater one in the middle.
[[nodiscard]] double median_of(std::vector<double> values);

}  // namespace lockstep::watch
