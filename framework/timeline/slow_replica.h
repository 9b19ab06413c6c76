#pragma once

#include <cstdint>
#include <map>
#include <optional>
#include <span>
#include <vector>

#include "framework/timeline/recorder.h"

namespace lockstep::timeline {

/// The times of a step that show a slow replica, in seconds.
struct StepPace {
  std::map<int, double> own{};  ///< each replica's own work: all but communication
  double total = 0;             ///< the step's
  double exposed = 0;           ///< in calls that all replicas have reached: their mean
  double hidden = 0;            ///< in calls beside other work: their mean
};

/// A replica that makes steps longer, with its cost.
struct SlowReplica {
  int replica = 0;
  /// The median step would be so much shorter if the replica were as slow as the next slowest one.
  double seconds_a_step = 0;
  double share = 0;        ///< the same as a part of the median step
  std::int64_t steps = 0;  ///< the number of steps in which it is the slowest
};

/// Returns the replica that makes the median step longer by more than a tenth, and is the slowest
/// in more than two thirds of the steps. Returns nothing if there is no such replica, or only one.
/// Medians leave out the effect of a busy machine on a few steps. Pure.
[[nodiscard]] std::optional<SlowReplica> slow_replica(const std::vector<StepPace>& steps);

/// Returns the share of the replicas' time in which they would wait for the slowest of each step;
/// 0 without any steps. Pure.
[[nodiscard]] double waiting_share(const std::vector<StepPace>& steps);

/// A replica's time in a step, in seconds.
struct ReplicaWork {
  double own = 0;      ///< all but communication
  double waiting = 0;  ///< for the slowest one
};

/// Returns each replica's median work and median wait, in steps of the same replicas. Pure.
[[nodiscard]] std::map<int, ReplicaWork> replica_work(std::span<const StepPace> steps);

/// A measure of a replica's own work from step to step, by its recorded spans.
class OwnWork {
 public:
  /// Returns the seconds since the last next(), without those in which `track` was in calls; 0 at
  /// first, and without a track. A call reads the spans since then: microseconds. `track` must be
  /// in no call then. For one thread.
  [[nodiscard]] double next(const Recorder::Track* track);

 private:
  std::uint64_t last_ = 0;   // when next() was last called
  std::uint64_t after_ = 0;  // the last span that had begun then
};

/// Returns the median of at least one value; of an even number the greater one in the middle.
[[nodiscard]] double median_of(std::vector<double> values);

}  // namespace lockstep::timeline
