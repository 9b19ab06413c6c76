#include "framework/timeline/job_trace.h"

#include <algorithm>
#include <array>
#include <fstream>
#include <limits>

#include <unistd.h>

#include "framework/base/errors.h"
#include "framework/base/text.h"

namespace lockstep::timeline {
namespace {

using std::chrono::milliseconds;

// Rings are read at the first pace, or at the second while a ring gets more than a quarter of its
// spans in between.
constexpr milliseconds kLook{20};
constexpr milliseconds kQuickLook{2};
constexpr milliseconds kAsk{250};
// Host 0 waits for so long after its replicas' end for the other hosts' parts.
constexpr milliseconds kLate{2000};
constexpr int kTimesAsked = 12;  // in a round
constexpr std::size_t kPiece = std::size_t{512} << 10;
constexpr std::size_t kLongestPart = std::size_t{64} << 20;
// No time is later, so that neither sums nor differences of times overflow.
constexpr std::uint64_t kEndOfTime = std::uint64_t{1} << 62;

std::string own_name() {
  std::array<char, 256> name{};
  return ::gethostname(name.data(), name.size() - 1) == 0 ? name.data() : "";
}

// Returns a process' resident memory, by what the kernel says at little cost; 0 if it is gone.
std::uint64_t resident_bytes(pid_t process) {
  std::uint64_t pages = 0;
  std::ifstream("/proc/" + std::to_string(process) + "/statm") >> pages >> pages;
  return pages * static_cast<std::uint64_t>(::sysconf(_SC_PAGESIZE));
}

// Returns the step of a span that has one.
std::optional<std::int64_t> step_of(const Recorder::Span& span) {
  if (!has_step(span.kind) || span.id == 0 || span.id > std::numeric_limits<std::int64_t>::max())
    return std::nullopt;
  return static_cast<std::int64_t>(span.id);
}

// Throws DataError unless a host with these replicas can have recorded the part.
void check_part(const Trace::Host& part, const Range& replicas) {
  std::size_t spans = 0;
  const auto check = [](bool holds) {
    require<DataError>(holds, "a part of a trace can't be what a host's replicas have recorded");
  };
  for (const ReplicaRecording& recording : part.replicas) {
    check(recording.replica >= replicas.offset && recording.replica < replicas.end());
    check(recording.tracks.size() <= Recorder::kTracks);
    for (const Recorder::Recording& track : recording.tracks) {
      spans += track.spans.size();
      for (const Recorder::Span& span : track.spans) {
        check(span.begin < kEndOfTime && span.end < kEndOfTime);
        check(span.end == 0 || span.end >= span.begin);
      }
    }
  }
  for (const Trace::Memory& memory : part.memory) check(memory.at < kEndOfTime);
  check(spans <= JobTrace::kMostSpans &&
        part.replicas.size() <= static_cast<std::size_t>(replicas.size));
}

// Brings a host's part to host 0's clock.
void shift(Trace::Host& part, const ClockOffset& clock) {
  part.offset = clock.offset;
  part.error = clock.error;
  const auto move = [&](std::uint64_t& time) {
    time = static_cast<std::uint64_t>(
        std::max<std::int64_t>(static_cast<std::int64_t>(time) + clock.offset, 1));
  };
  for (ReplicaRecording& recording : part.replicas) {
    for (Recorder::Recording& track : recording.tracks) {
      for (Recorder::Span& span : track.spans) {
        move(span.begin);
        if (span.end != 0) move(span.end);
      }
    }
  }
  for (Trace::Memory& memory : part.memory) move(memory.at);
}

}  // namespace

ClockOffset clock_offset(std::uint64_t sent, std::uint64_t heard, std::uint64_t back) {
  const std::uint64_t error = (back - sent + 1) / 2;
  return {static_cast<std::int64_t>(sent + (back - sent) / 2) - static_cast<std::int64_t>(heard),
          error};
}

JobTrace::JobTrace(std::size_t own, std::vector<Range> replicas, const Recorder& recorder,
                   Uses uses)
    : own_(own), replicas_(std::move(replicas)), recorder_(recorder), uses_(std::move(uses)) {}

void JobTrace::progress() {
  const auto now = Clock::now();
  if (own_ == 0 && !(trace_ && has_begun_) && uses_.wanted && !ended_ && now - asked_ >= kAsk) {
    asked_ = now;
    const auto steps = uses_.wanted();
    // A wish for the next steps is a new one each time.
    const bool is_known = steps == steps_ && (trace_ || (steps && steps->first > 0));
    if (steps && !is_known) want(*steps);
  }
  if (wanted_ && now - looked_ >= pace_) look();
}

void JobTrace::want(const TracedSteps& steps) {
  steps_ = steps;
  has_begun_ = false;
  gather();
  const std::int64_t first =
      steps.first > 0 ? steps.first : std::max<std::int64_t>(newest(), 0) + 1;
  trace_.emplace();
  trace_->first = first;
  trace_->last = first + std::max<std::int64_t>(steps.count, 1) - 1;
  parts_.clear();
  come_.clear();
  clocks_.clear();
  is_second_round_ = false;
  const TraceWanted wanted{number_ + 1, trace_->first, trace_->last};
  for (std::size_t host = 1; host < replicas_.size(); ++host) {
    if (takes_part(host)) uses_.send(host, wanted);
  }
  take(0, wanted);
}

void JobTrace::hear(std::size_t from, const TraceMessage& message) {
  const bool is_for_first = std::holds_alternative<TraceWords>(message);
  require<DataError>(
      from < replicas_.size() && from != own_ &&
          (own_ == 0 ? !std::holds_alternative<TraceWanted>(message) : from == 0 && !is_for_first),
      "host 0 alone asks for traces");
  std::visit([&](const auto& each) { take(from, each); }, message);
}

void JobTrace::take(std::size_t /*from*/, const TraceWanted& wanted) {
  require<DataError>(wanted.first >= 1 && wanted.last >= wanted.first, "no steps are wanted");
  number_ = wanted.number;
  wanted_ = wanted;
  gathered_.clear();
  after_.clear();
  memory_.clear();
  is_cut_ = is_near_ = false;
  if (ended_) return finish();
  look();
}

// Returns the newest step that a replica, or any of them, has begun; -1 for none.
std::int64_t JobTrace::newest(std::optional<int> replica) const {
  std::int64_t step = -1;
  for (const auto& [place, track] : gathered_) {
    if (replica && place.first != *replica) continue;
    for (const auto& [number, span] : track.spans)
      step = std::max(step, step_of(span).value_or(-1));
  }
  return step;
}

void JobTrace::gather(Recorder::Names names) {
  pace_ = kLook;
  for (const ReplicaRecording& recording : read_replicas(recorder_, after_, names)) {
    for (std::size_t track = 0; track < recording.tracks.size(); ++track) {
      const Recorder::Recording& its = recording.tracks[track];
      if (its.begun == 0) continue;
      Gathered& all = gathered_[{recording.replica, track}];
      all.name = its.track;
      // Later spans may have overwritten spans that nobody has read.
      const std::uint64_t last = after_[{recording.replica, track}];
      if (its.begun > last + Recorder::kSpans / 4) pace_ = kQuickLook;
      is_cut_ = is_cut_ || (last > 0 && its.begun > last + Recorder::kSpans);
      for (const Recorder::Span& span : its.spans) all.spans.insert_or_assign(span.number, span);
      // A span that was overwritten while it lasted is written again when it ends.
      std::erase_if(all.spans, [&](const auto& entry) {
        return entry.second.end == 0 && entry.first + Recorder::kSpans <= its.begun;
      });
      const auto lasting =
          std::ranges::find_if(all.spans, [](const auto& entry) { return entry.second.end == 0; });
      after_[{recording.replica, track}] =
          lasting == all.spans.end() ? its.begun : lasting->first - 1;
    }
  }
}

void JobTrace::look() {
  looked_ = Clock::now();
  // Names take most of the time, so they are left out until the steps come near.
  gather(is_near_ ? Recorder::Names::read : Recorder::Names::left_out);
  const std::int64_t step = newest();
  if (step + 1 < wanted_->first) {
    is_cut_ = false;
    for (auto& [place, track] : gathered_)
      std::erase_if(track.spans, [](const auto& entry) { return entry.second.end != 0; });
    return;
  }
  if (!std::exchange(is_near_, true)) {
    gathered_.clear();
    after_.clear();
    gather();
  }
  if (step < wanted_->first) return;
  has_begun_ = true;
  for (const auto& [worker, process] : workers_)
    memory_.push_back({worker, recorder_now(), resident_bytes(process)});
  if (own_ == 0 && clocks_.empty() && replicas_.size() > 1) ask_clocks();
  const std::size_t spans =
      sum_of(gathered_, [](const auto& entry) { return entry.second.spans.size(); });
  if (is_over() || spans > kMostSpans) finish();
}

// Returns true if each replica has ended the last step.
bool JobTrace::is_over() const {
  std::map<int, bool> over;
  for (const auto& [place, track] : gathered_) {
    bool& its = over[place.first];
    for (const auto& [number, span] : track.spans) {
      const std::int64_t step = step_of(span).value_or(0);
      const bool has_ended = span.kind == SpanKind::step && step == wanted_->last && span.end != 0;
      its = its || has_ended || step > wanted_->last;
    }
  }
  return !over.empty() && std::ranges::all_of(over, [](const auto& each) { return each.second; });
}

// Takes the spans from the begin of the first step, or of an evaluation or checkpoint before it, to
// the end of the last step.
Trace::Host JobTrace::own_part() {
  std::uint64_t begin = std::numeric_limits<std::uint64_t>::max();
  std::uint64_t end = 0;
  for (const auto& [place, track] : gathered_) {
    for (const auto& [number, span] : track.spans) {
      const auto step = step_of(span);
      const bool leads_to_first = is_between_steps(span.kind) && step == wanted_->first - 1;
      if (!step || (*step < wanted_->first && !leads_to_first) || *step > wanted_->last) continue;
      begin = std::min(begin, span.begin);
      end = std::max(end, span.end == 0 ? recorder_now() : span.end);
    }
  }
  Trace::Host part{.name = own_name(), .is_cut = is_cut_};
  std::size_t left = kMostSpans;
  for (const auto& [place, track] : gathered_) {
    Recorder::Recording recording{.track = track.name, .begun = 0, .spans = {}};
    for (const auto& [number, span] : track.spans) {
      if (span.begin > end || (span.end != 0 && span.end < begin)) continue;
      part.is_cut = part.is_cut || left == 0;
      if (left == 0) break;
      --left;
      recording.spans.push_back(span);
    }
    recording.begun = recording.spans.size();
    if (recording.spans.empty()) continue;
    if (part.replicas.empty() || part.replicas.back().replica != place.first)
      part.replicas.push_back({.replica = place.first});
    part.replicas.back().tracks.push_back(std::move(recording));
  }
  if (!part.replicas.empty()) part.memory = std::move(memory_);
  return part;
}

void JobTrace::finish() {
  Trace::Host part = own_part();
  gathered_.clear();
  memory_.clear();
  wanted_.reset();
  if (own_ != 0) {
    const std::string words = encode(part);
    for (std::size_t at = 0; at < words.size(); at += kPiece)
      uses_.send(0, TraceWords{number_, words.substr(at, kPiece), at + kPiece >= words.size()});
    return;
  }
  parts_[0] = std::move(part);
  is_second_round_ = true;
  ask_clocks();
  give();
}

void JobTrace::ask_clocks() {
  for (std::size_t host = 1; host < replicas_.size(); ++host) {
    if (!takes_part(host)) continue;
    clocks_[host].asked = 1;
    uses_.send(host, ClockAsked{recorder_now(), 0});
  }
}

void JobTrace::take(std::size_t from, const ClockAsked& asked) {
  const std::uint64_t now = recorder_now();
  if (own_ != 0) return uses_.send(0, ClockAsked{asked.sent, now});
  require<DataError>(asked.sent <= now && asked.heard < kEndOfTime, "this host was not asked then");
  const auto found = clocks_.find(from);
  if (found == clocks_.end()) return;
  OtherClock& clock = found->second;
  const ClockOffset offset = clock_offset(asked.sent, asked.heard, now);
  auto& best = is_second_round_ ? clock.last : clock.first;
  if (!best || offset.error < best->error) best = offset;
  if (clock.asked < kTimesAsked) {
    ++clock.asked;
    uses_.send(from, ClockAsked{recorder_now(), 0});
  }
  give();
}

void JobTrace::take(std::size_t from, const TraceWords& words) {
  if (!trace_ || words.number != number_) return;  // its trace was given away
  std::string& come = come_[from];
  come += words.words;
  require<DataError>(come.size() <= kLongestPart && !parts_.contains(from),
                     "a part of a trace is too long");
  if (!words.is_last) return;
  auto part = decode<Trace::Host>(std::exchange(come, {}), "a part of a trace");
  check_part(part, replicas_[from]);
  parts_[from] = std::move(part);
  give();
}

bool JobTrace::is_complete() const {
  const auto hosts =
      std::ranges::count_if(replicas_, [](const Range& its) { return its.size > 0; });
  return std::ssize(parts_) == hosts && std::ranges::all_of(clocks_, [](const auto& entry) {
           return entry.second.last && entry.second.asked >= kTimesAsked;
         });
}

void JobTrace::give() {
  if (is_complete()) close();
}

void JobTrace::end() {
  if (ended_) return;
  ended_ = Clock::now();
  if (!wanted_) return;
  gather();
  finish();
}

bool JobTrace::is_pending() const {
  return own_ == 0 && trace_ && ended_ && Clock::now() - *ended_ < kLate;
}

void JobTrace::close() {
  if (!trace_) return;
  Trace trace = *std::exchange(trace_, std::nullopt);
  bool has_spans = false;
  for (std::size_t host = 0; host < replicas_.size(); ++host) {
    Trace::Host& part = trace.hosts.emplace_back(std::move(parts_[host]));
    has_spans = has_spans || !part.replicas.empty();
    const OtherClock& clock = clocks_[host];
    if (!clock.last) continue;
    const ClockOffset before = clock.first.value_or(*clock.last);
    // Each offset is right within its error, and so is any between them.
    const std::int64_t offset = before.offset + (clock.last->offset - before.offset) / 2;
    const auto differ = static_cast<std::uint64_t>(std::abs(clock.last->offset - before.offset));
    shift(part, {offset, std::max(before.error, clock.last->error) + differ / 2 + 1});
  }
  if (has_spans && uses_.take) uses_.take(trace);
}

}  // namespace lockstep::timeline
