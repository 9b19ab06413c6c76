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
#include "framework/timeline/recorder.h"
#include "framework/timeline/step_times.h"
#include "framework/timeline/trace.h"

namespace lockstep::timeline {

// These are the messages between launchers about traces.

/// Host 0's request for these steps as trace `number`.
struct TraceWanted {
  std::uint64_t number = 0;
  std::int64_t first = 0;
  std::int64_t last = 0;
  LOCKSTEP_FIELDS(number, first, last)
};
/// Host 0's question, sent at `sent` of its clock; the answer has `heard` of the other clock.
struct ClockAsked {
  std::uint64_t sent = 0;
  std::uint64_t heard = 0;
  LOCKSTEP_FIELDS(sent, heard)
};
/// A piece of a host's part of a trace, which is an encoded Trace::Host, for host 0.
struct TraceWords {
  std::uint64_t number = 0;
  std::string words;
  bool is_last = false;
  LOCKSTEP_FIELDS(number, words, is_last)
};
using TraceMessage = std::variant<TraceWanted, ClockAsked, TraceWords>;

/// The offset that brings another clock's times to this clock, and its greatest error.
struct ClockOffset {
  std::int64_t offset = 0;
  std::uint64_t error = 0;
};
/// Returns the offset of a clock that said `heard` between two times of this one.
[[nodiscard]] ClockOffset clock_offset(std::uint64_t sent, std::uint64_t heard, std::uint64_t back);

/// A launcher's part in traces, while one run lasts. When host 0 wants a trace, all launchers read
/// their recorders until their replicas have done its steps. Then the others send their parts to
/// host 0. Host 0 asks them for their times when the first step begins and after the last one,
/// several times each: the quickest answer tells an offset best. The trace has the mean of the two
/// offsets, and its error covers their difference. For one thread.
class JobTrace : private NonCopyable {
 public:
  /// The functions that a launcher gives to its JobTrace.
  struct Uses {
    std::function<void(std::size_t host, const TraceMessage& message)> send{};
    /// On host 0: returns the wanted steps. It is called a few times a second until the first of
    /// these steps has begun.
    std::function<std::optional<TracedSteps>()> wanted{};
    /// On host 0: takes the trace, unless the run ends before the first of its steps.
    std::function<void(const Trace& trace)> take{};
  };
  /// Traces on host `own`. Each host runs these `replicas` and records them in its own `recorder`.
  JobTrace(std::size_t own, std::vector<Range> replicas, const Recorder& recorder, Uses uses);

  /// Sets the processes of this host's workers, by worker: traces show their memory.
  void set_workers(std::vector<std::pair<int, pid_t>> workers) { workers_ = std::move(workers); }

  /// Does what can be done now. Call it often.
  void progress();
  /// Takes another host's message. Throws DataError if that host can't have sent it.
  void hear(std::size_t from, const TraceMessage& message);
  /// Ends this host's part: its replicas have ended, and record nothing more.
  void end();
  /// Returns how often progress() is due while this host's recorder is read; else nothing.
  [[nodiscard]] std::optional<std::chrono::milliseconds> pace() const {
    return wanted_ ? std::optional(pace_) : std::nullopt;
  }
  /// True on host 0 when a trace's last pieces are still to come, a little while after end().
  [[nodiscard]] bool is_pending() const;
  /// Ends the run. Gives away as much of a pending trace as there is.
  void close();

  /// The most spans of a host in a trace. A host with more is cut.
  static constexpr std::size_t kMostSpans = std::size_t{1} << 18;

 private:
  using Clock = std::chrono::steady_clock;
  struct Gathered {
    std::string name{};
    std::map<std::uint64_t, Recorder::Span> spans{};  // by number
  };
  struct OtherClock {
    std::optional<ClockOffset> first{};  // the best at the beginning …
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
  Clock::time_point asked_{};   // when `wanted` was last called
  Clock::time_point looked_{};  // when the rings were last read
  std::chrono::milliseconds pace_{0};
  std::optional<Clock::time_point> ended_;

  std::uint64_t number_ = 0;  // the trace's
  bool is_near_ = false;      // the step before the first has begun
  bool is_cut_ = false;
  std::optional<TraceWanted> wanted_;  // while this host gathers spans
  std::map<std::pair<int, std::size_t>, Gathered> gathered_;
  TrackNumbers after_;
  std::vector<Trace::Memory> memory_;

  // Host 0 alone uses these:
  std::optional<TracedSteps> steps_;         // the wanted steps …
  std::optional<Trace> trace_;               // … and their trace, while it is made
  bool has_begun_ = false;                   // the first of the steps
  std::map<std::size_t, std::string> come_;  // unfinished parts, by host
  std::map<std::size_t, Trace::Host> parts_;
  std::map<std::size_t, OtherClock> clocks_;
  bool is_second_round_ = false;  // … of asking for times
};

}  // namespace lockstep::timeline
