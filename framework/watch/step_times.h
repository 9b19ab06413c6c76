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

#include "framework/watch/recorder.h"
#include "framework/watch/slow_replica.h"

namespace lockstep::watch {

/// What a replica's time in a step went to. A moment counts once, for the innermost of its spans.
enum class TimePart : std::uint8_t {
  data,
  forward,
  backward,
  communication,  ///< in calls that the replica itself makes or waits for: what is exposed of them
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

/// A replica's recordings. Recordings that are looked at together have the times of one clock:
/// a trace of several hosts has brought all of them to host 0's.
struct ReplicaRecording {
  int replica = 0;
  std::vector<Recorder::Recording> tracks{};  ///< of which one is called "replica"
  LOCKSTEP_FIELDS(replica, tracks)
};

/// A replica's part of a step, or of several; in seconds.
struct ReplicaTimes {
  std::array<double, kTimeParts.size()> parts{};
  double hidden = 0;  ///< calls that went on beside the replica while it did not wait for any
  /// By replica, how long this one has waited for it in calls: from the own arrival until the last
  /// one's, which is whom all others wait for. A part of TimePart::communication.
  std::map<int, double> waited_for{};

  [[nodiscard]] double of(TimePart part) const { return parts[static_cast<std::size_t>(part)]; }
  [[nodiscard]] double total() const;
  [[nodiscard]] double waited() const;
  /// The replica's own work of training, which is no other's fault.
  [[nodiscard]] double own() const;
  /// Without evaluations and checkpoints.
  [[nodiscard]] double of_training() const { return own() + of(TimePart::communication); }
  ReplicaTimes& operator+=(const ReplicaTimes& more);
};

/// What replicas did in steps that all of them have recorded wholly.
struct StepTimes {
  std::map<std::int64_t, std::map<int, ReplicaTimes>> steps{};  ///< by step and replica

  /// By replica, over all steps.
  [[nodiscard]] std::map<int, ReplicaTimes> sums() const;
  /// The part of the replicas' time of training that they wait for others; 0 without any steps.
  [[nodiscard]] double waiting_share() const;

  /// What each of the steps, the longest of its replicas', tells of who is slow (slow_replica.h).
  [[nodiscard]] std::vector<StepPace> paces() const;
  [[nodiscard]] std::optional<SlowReplica> slow() const { return slow_replica(paces()); }
};

/// A step is what spans of that kind with its number say. A replica whose step goes on still,
/// though another has ended it, has done its part.
/// Other spans that go on, and steps that are not whole, are left out. Where only
/// some of a call's replicas are given, such as one host's, waits for the others do not count. Any
/// thread.
[[nodiscard]] StepTimes step_times(
    const std::vector<ReplicaRecording>& recordings, std::int64_t first_step = 0,
    std::int64_t last_step = std::numeric_limits<std::int64_t>::max());

/// Numbers of spans by replica and track.
using TrackNumbers = std::map<std::pair<int, std::size_t>, std::uint64_t>;

/// What is recorded now of all replicas that have recorded anything, which are those of this host:
/// their kTracks tracks, of which some may be empty, with the spans after these numbers.
[[nodiscard]] std::vector<ReplicaRecording> read_replicas(
    const Recorder& recorder, const TrackNumbers& after = {},
    Recorder::Names names = Recorder::Names::read);

/// What replicas are in now that wait in no call for others, or have ended last: "replica 1 has
/// been in its forward of step 7 for 15.2 s; replica 2 has been in code of its own for 15.1 s,
/// since step 6"; "" if there are none.
[[nodiscard]] std::string doing_text(const std::vector<ReplicaRecording>& recordings);

/// Tells a replica, now and then, what this host's replicas did since the last time. A call reads
/// what they have recorded since then: microseconds a step. For one thread.
class StepWatch {
 public:
  /// Of the replicas that `track` (track_here) is one of; nullptr: of none.
  explicit StepWatch(const Recorder::Track* track);

  /// The steps that have ended since the last call, as far as their spans are still there: with the
  /// one that the caller has ended last, if it records steps, and may have been the first to do so.
  [[nodiscard]] StepTimes next();

 private:
  void forget(const ReplicaRecording& recording);

  std::optional<Recorder> recorder_;
  TrackNumbers after_;
  std::int64_t last_step_ = 0;
};

}  // namespace lockstep::watch
