#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <limits>
#include <map>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "framework/timeline/recorder.h"
#include "framework/timeline/slow_replica.h"

namespace lockstep::timeline {

/// A part of a replica's time in a step. A moment counts once, for the innermost of its spans.
enum class TimePart : std::uint8_t {
  data,
  forward,
  backward,
  communication,  ///< exposed calls: those that the replica itself makes or waits for
  update,
  evaluation,  ///< with all that is in it, also between steps: counted in the step that follows
  checkpoint,  ///< likewise
  pause,       ///< its process was stopped, whatever it did
  other
};
inline constexpr std::array kTimeParts{"data",          "forward", "backward",
                                       "communication", "update",  "evaluation",
                                       "checkpoint",    "pause",   "other"};

/// True for a replica's own work of training.
[[nodiscard]] constexpr bool is_own(TimePart part) noexcept {
  return part != TimePart::communication && part != TimePart::evaluation &&
         part != TimePart::checkpoint;
}

/// A replica's recordings. Recordings that are read together have the times of one clock: host 0's,
/// in a trace of several hosts.
struct ReplicaRecording {
  int replica = 0;
  std::vector<Recorder::Recording> tracks{};  ///< one of them is called "replica"
  LOCKSTEP_FIELDS(replica, tracks)
};

/// A replica's times in a step, or in several, in seconds.
struct ReplicaTimes {
  std::array<double, kTimeParts.size()> parts{};
  double hidden = 0;  ///< calls that went on beside the replica while it did not wait for any
  /// How long this replica has waited in calls, by the replica that it waited for: from its own
  /// arrival to the last one's, for which all others wait. A part of TimePart::communication.
  std::map<int, double> waited_for{};

  [[nodiscard]] double of(TimePart part) const { return parts[static_cast<std::size_t>(part)]; }
  [[nodiscard]] double total() const;
  [[nodiscard]] double waited() const;
  /// Returns the time of the replica's own training work, for which no other replica is at fault.
  [[nodiscard]] double own() const;
  /// Returns the total without evaluations and checkpoints.
  [[nodiscard]] double of_training() const { return own() + of(TimePart::communication); }
  ReplicaTimes& operator+=(const ReplicaTimes& more);
};

/// The replicas' times in the steps that all of them have recorded wholly.
struct StepTimes {
  std::map<std::int64_t, std::map<int, ReplicaTimes>> steps{};  ///< by step and replica

  /// Returns the replicas' times over all steps.
  [[nodiscard]] std::map<int, ReplicaTimes> sums() const;
  /// Returns the share of training time in which replicas wait for others; 0 without any steps.
  [[nodiscard]] double waiting_share() const;

  /// Returns the pace of each step: its total is the longest of its replicas' (slow_replica.h).
  [[nodiscard]] std::vector<StepPace> paces() const;
  [[nodiscard]] std::optional<SlowReplica> slow() const { return slow_replica(paces()); }
};

/// Returns the times of the steps from `first_step` to `last_step`. A step is a span of kind
/// `step`. Once one replica has ended a step, an open span of another counts as ended then. Other
/// open spans, and steps that some replica lacks, are left out. If `recordings` has only some of a
/// call's replicas, such as one host's, waits for the others do not count. For any thread.
[[nodiscard]] StepTimes step_times(
    const std::vector<ReplicaRecording>& recordings, std::int64_t first_step = 0,
    std::int64_t last_step = std::numeric_limits<std::int64_t>::max());

/// Numbers of spans by replica and track.
using TrackNumbers = std::map<std::pair<int, std::size_t>, std::uint64_t>;

/// Reads all replicas that have recorded anything, which are those of this host: their kTracks
/// tracks, of which some may be empty, with the spans after these numbers.
[[nodiscard]] std::vector<ReplicaRecording> read_replicas(
    const Recorder& recorder, const TrackNumbers& after = {},
    Recorder::Names names = Recorder::Names::read);

/// Returns the present or last spans of the replicas that wait in no call for others: "replica 1
/// has been in its forward of step 7 for 15.2 s; replica 2 has been in code of its own for 15.1 s,
/// since step 6"; "" if there are none.
[[nodiscard]] std::string doing_text(const std::vector<ReplicaRecording>& recordings);

/// A watch that tells a replica, now and then, what this host's replicas did since the last time. A
/// call reads the spans since then: microseconds a step. For one thread.
class StepWatch {
 public:
  /// Watches the replicas of the recorder of `track` (track_here); with nullptr, none.
  explicit StepWatch(const Recorder::Track* track);

  /// Returns the steps that have ended since the last call, as far as their spans are still there,
  /// with the caller's last one, if it records steps, even if no other replica has ended that yet.
  [[nodiscard]] StepTimes next();

 private:
  void forget(const ReplicaRecording& recording);

  std::optional<Recorder> recorder_;
  TrackNumbers after_;
  std::int64_t last_step_ = 0;
};

}  // namespace lockstep::timeline
