#pragma once

#include <chrono>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <map>
#include <optional>
#include <string>
#include <utility>
#include <variant>
#include <vector>

#include <sys/types.h>

#include "framework/base/non_copyable.h"
#include "framework/base/range.h"
#include "framework/base/record.h"
#include "framework/watch/recorder.h"
#include "framework/watch/step_times.h"
#include "framework/watch/trace.h"

namespace lockstep::watch {

// What launchers tell each other of traces.

/// Of host 0: these steps are wanted as trace `number`.
struct TraceWanted {
  std::uint64_t number = 0;
  std::int64_t first = 0;
  std::int64_t last = 0;
  LOCKSTEP_FIELDS(number, first, last)
};
/// Of host 0, which has sent it at this time of its clock; and the answer, with the other's time.
struct ClockAsked {
  std::uint64_t sent = 0;
  std::uint64_t heard = 0;
  LOCKSTEP_FIELDS(sent, heard)
};
/// To host 0: a piece of a host's part of a trace, which is a Trace::Host.
struct TraceWords {
  std::uint64_t number = 0;
  std::string words;
  bool is_last = false;
  LOCKSTEP_FIELDS(number, words, is_last)
};
using TraceMessage = std::variant<TraceWanted, ClockAsked, TraceWords>;

/// Another clock's offset to this one: what is to be added to its times, and how far that is off at
/// most.
struct ClockOffset {
  std::int64_t offset = 0;
  std::uint64_t error = 0;
};
/// Of one that said `heard` between two times of this one.
[[nodiscard]] ClockOffset clock_offset(std::uint64_t sent, std::uint64_t heard, std::uint64_t back);

/// A launcher's part in traces, while one run lasts. When host 0's wants one, all launchers read
/// their recorders until their replicas have done its steps. Then the others send host 0 what they
/// have read. Host 0 asks them for their times when the first step begins and after the last one,
/// several times: the quickest answer tells an offset best. The mean of the two is the trace's. Its
/// error covers by how much they differ. For one thread.
class JobTrace : private NonCopyable {
 public:
  /// What a launcher gives it.
  struct Uses {
    std::function<void(std::size_t host, const TraceMessage& message)> send{};
    /// On host 0, asked a few times a second until the first of the steps has begun: those that are
    /// wanted.
    std::function<std::optional<TracedSteps>()> wanted{};
    /// On host 0: gets what was wanted, unless the run ends before the first of the steps.
    std::function<void(const Trace& trace)> take{};
  };
  /// On host `own` of those that run these replicas and record them in `recorder`, each in its own.
  JobTrace(std::size_t own, std::vector<Range> replicas, const Recorder& recorder, Uses uses);

  /// The processes of this host's workers, by these: their memory is a part of traces.
  void set_workers(std::vector<std::pair<int, pid_t>> workers) { workers_ = std::move(workers); }

  /// Goes on with what can be done now. Call it often.
  void progress();
  /// What the JobTrace of another host has sent. DataError if it can't be.
  void hear(std::size_t from, const TraceMessage& message);
  /// This host's replicas have ended, and record nothing more.
  void end();
  /// While this host's recorder is read: after how long progress() is due again.
  [[nodiscard]] std::optional<std::chrono::milliseconds> pace() const {
    return wanted_ ? std::optional(pace_) : std::nullopt;
  }
  /// On host 0: whether a trace's last pieces are still to come, a little while after end().
  [[nodiscard]] bool is_pending() const;
  /// The run is over. Gives away what there is of a trace that is pending.
  void close();

  /// Of a host, in a trace: what comes after these makes it cut.
  static constexpr std::size_t kMostSpans = std::size_t{1} << 18;

 private:
  using Clock = std::chrono::steady_clock;
  struct Gathered {
    std::string name{};
    std::map<std::uint64_t, Recorder::Span> spans{};  // by number
  };
  struct OtherClock {
    std::optional<ClockOffset> first{};  // the best of those at the beginning …
    std::optional<ClockOffset> last{};   // … and at the end
    int asked = 0;                       // how often in this round
  };

  void take(std::size_t from, const TraceWanted& wanted);
  void take(std::size_t from, const ClockAsked& asked);
  void take(std::size_t from, const TraceWords& words);

  void want(const TracedSteps& steps);
  void look();
  void gather(Recorder::Names names = Recorder::Names::read);
  [[nodiscard]] std::int64_t newest(std::optional<int> replica = std::nullopt) const;
  [[nodiscard]] bool is_over() const;
  [[nodiscard]] Trace::Host own_part();
  void finish();
  [[nodiscard]] bool takes_part(std::size_t host) const { return replicas_[host].size > 0; }
  void ask_clocks();
  [[nodiscard]] bool is_complete() const;
  void give();

  std::size_t own_;
  std::vector<Range> replicas_;  // by host
  Recorder recorder_;
  Uses uses_;
  std::vector<std::pair<int, pid_t>> workers_;
  Clock::time_point asked_{};   // when somebody was last asked for what is wanted
  Clock::time_point looked_{};  // and when the rings were read
  std::chrono::milliseconds pace_{0};
  std::optional<Clock::time_point> ended_;

  std::uint64_t number_ = 0;  // of the trace
  bool is_near_ = false;      // the step before the first has begun
  bool is_cut_ = false;
  std::optional<TraceWanted> wanted_;  // while this host gathers spans
  std::map<std::pair<int, std::size_t>, Gathered> gathered_;
  TrackNumbers after_;
  std::vector<Trace::Memory> memory_;

  // Of host 0:
  std::optional<TracedSteps> steps_;         // that are wanted …
  std::optional<Trace> trace_;               // … while the trace of them is made
  bool has_begun_ = false;                   // the first of them
  std::map<std::size_t, std::string> come_;  // of parts, by host
  std::map<std::size_t, Trace::Host> parts_;
  std::map<std::size_t, OtherClock> clocks_;
  bool is_second_round_ = false;  // of asking for times
};

}  // namespace lockstep::watch
