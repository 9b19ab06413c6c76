#include "framework/timeline/step_times.h"

#include <algorithm>
#include <cmath>
#include <numeric>
#include <tuple>
#include <utility>

#include "framework/base/range.h"
#include "framework/base/text.h"

namespace lockstep::timeline {
namespace {

using Span = Recorder::Span;

struct Interval {
  std::uint64_t begin;
  std::uint64_t end;
};

double seconds(std::uint64_t nanoseconds) {
  return static_cast<double>(nanoseconds) * 1e-9;
}

TimePart part_of(SpanKind kind) {
  switch (kind) {
    case SpanKind::data:
      return TimePart::data;
    case SpanKind::forward:
      return TimePart::forward;
    case SpanKind::backward:
      return TimePart::backward;
    case SpanKind::reduction:
    case SpanKind::collective:
    case SpanKind::gather:
      return TimePart::communication;
    case SpanKind::update:
      return TimePart::update;
    case SpanKind::evaluation:
      return TimePart::evaluation;
    case SpanKind::checkpoint:
      return TimePart::checkpoint;
    case SpanKind::pause:
      return TimePart::pause;
    case SpanKind::step:
    case SpanKind::callback:
    case SpanKind::transfer:
    case SpanKind::operation:
      break;
  }
  return TimePart::other;
}

Interval intersection(const Interval& a, const Interval& b) {
  const std::uint64_t begin = std::max(a.begin, b.begin);
  return {begin, std::max(begin, std::min(a.end, b.end))};
}

// Returns how long `others`, one after another, last in the interval.
std::uint64_t shared(const Interval& interval, const std::vector<Interval>& others) {
  std::uint64_t sum = 0;
  auto other = std::ranges::upper_bound(others, interval.begin, {}, &Interval::end);
  for (; other != others.end() && other->begin < interval.end; ++other) {
    const Interval both = intersection(interval, *other);
    sum += both.end - both.begin;
  }
  return sum;
}

// The end of each recorded step, on the last of the replicas that have ended it.
using StepEnds = std::map<std::uint64_t, std::uint64_t>;

StepEnds step_ends(const std::vector<ReplicaRecording>& recordings) {
  StepEnds ends;
  for (const ReplicaRecording& recording : recordings) {
    for (const auto& track : recording.tracks) {
      for (const Span& span : track.spans) {
        if (span.kind == SpanKind::step && span.end != 0)
          ends[span.id] = std::max(ends[span.id], span.end);
      }
    }
  }
  return ends;
}

// Ends the open spans of a step that another replica has ended: nothing is left to wait for in it.
void end_open(std::vector<Span>& spans, const StepEnds& ends) {
  const auto open = std::ranges::find_if(spans, [&](const Span& span) {
    return span.kind == SpanKind::step && span.end == 0 && ends.contains(span.id);
  });
  if (open == spans.end()) return;
  const std::uint64_t end = ends.at(open->id);
  for (auto span = open; span != spans.end(); ++span) {
    if (span->end == 0) span->end = std::max(end, span->begin);
  }
}

// Returns the spans of the replica's own thread, with its steps, outer ones before inner ones.
std::vector<Span> own_spans(const ReplicaRecording& recording, const StepEnds& ends) {
  std::vector<Span> spans;
  for (const auto& track : recording.tracks) {
    if (track.track == "replica") spans.insert(spans.end(), track.spans.begin(), track.spans.end());
  }
  end_open(spans, ends);
  std::erase_if(spans, [](const Span& span) { return span.end == 0; });
  std::ranges::stable_sort(spans, {}, [](const Span& span) {
    return std::tuple(span.begin, ~span.end, span.kind != SpanKind::step);
  });
  return spans;
}

// Returns "its forward of step 7", "step 7", "psum over 'data' at model.cpp:44".
std::string text_of(const Span& span) {
  if (is_call(span.kind) && !span.name.empty()) return span.name;
  const bool has_step = !is_call(span.kind) && span.id > 0;
  if (span.kind == SpanKind::step && has_step) return str("step ", span.id);
  const std::string name = span.kind == SpanKind::callback ? " " + span.name : "";
  return str("its ", name_of(span.kind), name, has_step ? str(" of step ", span.id) : "");
}

// The arrivals of the replicas at each call, by the call's id.
using Arrivals = std::map<std::uint64_t, std::vector<std::pair<std::uint64_t, int>>>;

Arrivals arrivals_of(const std::vector<ReplicaRecording>& recordings) {
  Arrivals arrivals;
  for (const ReplicaRecording& recording : recordings) {
    for (const auto& track : recording.tracks) {
      for (const Span& span : track.spans) {
        if (!is_call(span.kind) || span.id == 0) continue;
        // A call beside the replica has two spans, its own and the wait for it. The first counts.
        auto& all = arrivals[span.id];
        const auto own =
            std::ranges::find(all, recording.replica, [](auto& a) { return a.second; });
        if (own == all.end()) {
          all.emplace_back(span.begin, recording.replica);
        } else {
          own->first = std::min(own->first, span.begin);
        }
      }
    }
  }
  return arrivals;
}

// A division of a replica's time among its steps and their parts.
class Division {
 public:
  Division(const ReplicaRecording& recording, const StepEnds& ends, const Arrivals& arrivals)
      : replica_(recording.replica), arrivals_(arrivals) {
    for (const auto& track : recording.tracks) {
      for (const Span& span : track.spans) {
        if (span.kind == SpanKind::pause && span.end != 0)
          pauses_.push_back({span.begin, span.end});
      }
    }
    for (const Span& span : own_spans(recording, ends)) add(span);
    pass(std::numeric_limits<std::uint64_t>::max());
    for (const auto& track : recording.tracks) {
      if (track.track != "replica") add_hidden(track.spans);
    }
  }

  [[nodiscard]] const std::map<std::int64_t, ReplicaTimes>& steps() const { return steps_; }

 private:
  // Adds the next span in the order of own_spans().
  void add(const Span& span) {
    pass(span.begin);
    if (!open_.empty()) count(open_.back(), span.begin);
    cursor_ = span.begin;
    open_.push_back(span);
    if (span.kind != SpanKind::step) return wait(span);
    step_ = &steps_[static_cast<std::int64_t>(span.id)];
    *step_ += std::exchange(between_, {});
    bounds_.push_back({{span.begin, span.end}, step_});
  }

  // Ends the open spans that end by `time`.
  void pass(std::uint64_t time) {
    while (!open_.empty() && open_.back().end <= time) {
      const Span span = open_.back();
      count(span, span.end);
      open_.pop_back();
      if (span.kind == SpanKind::step) step_ = nullptr;
      if (step_ == nullptr && is_between_steps(span.kind)) count_between(span);
    }
  }

  void count_between(const Span& span) {
    const Interval interval{span.begin, span.end};
    between_.parts[static_cast<std::size_t>(part_of(span.kind))] +=
        seconds(span.end - span.begin - shared(interval, pauses_));
  }

  // Counts the time since the last moment for the part of the innermost span.
  void count(const Span& innermost, std::uint64_t time) {
    const Interval interval{cursor_, std::max(cursor_, time)};
    cursor_ = interval.end;
    if (step_ == nullptr) return;
    const TimePart part = part_of(innermost.kind);
    const std::uint64_t paused = shared(interval, pauses_);
    step_->parts[static_cast<std::size_t>(part)] += seconds(interval.end - interval.begin - paused);
    step_->parts[static_cast<std::size_t>(TimePart::pause)] += seconds(paused);
    if (part == TimePart::communication) exposed_.push_back(interval);
  }

  // A replica that ends a call before another comes to it has not waited for that one.
  void wait(const Span& span) {
    const auto found = arrivals_.find(span.id);
    if (step_ == nullptr || !is_call(span.kind) || found == arrivals_.end()) return;
    std::pair<std::uint64_t, int> last{0, replica_};
    for (const auto& arrival : found->second) {
      if (arrival.first <= span.end) last = std::max(last, arrival);
    }
    if (last.second == replica_ || last.first <= span.begin) return;
    const Interval interval{span.begin, last.first};
    const std::uint64_t paused = shared(interval, pauses_);
    step_->waited_for[last.second] += seconds(interval.end - interval.begin - paused);
  }

  void add_hidden(const std::vector<Span>& spans) {
    for (const Span& span : spans) {
      if (!is_call(span.kind)) continue;
      const auto ends = [](const Step& step) { return step.bounds.end; };
      auto step = std::ranges::upper_bound(bounds_, span.begin, {}, ends);
      for (; step != bounds_.end() && step->bounds.begin < span.end; ++step) {
        const Interval within = intersection(step->bounds, {span.begin, span.end});
        step->times->hidden += seconds(within.end - within.begin - shared(within, exposed_));
      }
    }
  }

  struct Step {
    Interval bounds;
    ReplicaTimes* times;
  };

  int replica_;
  const Arrivals& arrivals_;
  std::vector<Interval> pauses_;
  std::vector<Span> open_;  // open at the moment, the innermost last
  std::uint64_t cursor_ = 0;
  std::map<std::int64_t, ReplicaTimes> steps_;
  ReplicaTimes* step_ = nullptr;  // open at the moment
  ReplicaTimes between_;          // since the last step
  std::vector<Step> bounds_;
  std::vector<Interval> exposed_;
};

}  // namespace

double ReplicaTimes::total() const {
  return std::accumulate(parts.begin(), parts.end(), 0.0);
}

double ReplicaTimes::own() const {
  double sum = 0;
  for (std::size_t part = 0; part < parts.size(); ++part) {
    if (is_own(static_cast<TimePart>(part))) sum += parts[part];
  }
  return sum;
}

double ReplicaTimes::waited() const {
  return sum_of(waited_for, [](const auto& wait) { return wait.second; });
}

ReplicaTimes& ReplicaTimes::operator+=(const ReplicaTimes& more) {
  std::ranges::transform(parts, more.parts, parts.begin(), std::plus());
  hidden += more.hidden;
  for (const auto& [replica, waited] : more.waited_for) waited_for[replica] += waited;
  return *this;
}

std::map<int, ReplicaTimes> StepTimes::sums() const {
  std::map<int, ReplicaTimes> sums;
  for (const auto& [step, replicas] : steps) {
    for (const auto& [replica, times] : replicas) sums[replica] += times;
  }
  return sums;
}

double StepTimes::waiting_share() const {
  const auto replicas = sums();
  const double total = sum_of(replicas, [](const auto& each) { return each.second.of_training(); });
  const double waited = sum_of(replicas, [](const auto& each) { return each.second.waited(); });
  return total > 0 ? waited / total : 0;
}

std::vector<StepPace> StepTimes::paces() const {
  return mapped(steps, [](const auto& step) {
    StepPace pace;
    for (const auto& [replica, times] : step.second) {
      pace.own.emplace(replica, times.own());
      pace.total = std::max(pace.total, times.of_training());
      const auto count = static_cast<double>(step.second.size());
      pace.exposed += (times.of(TimePart::communication) - times.waited()) / count;
      pace.hidden += times.hidden / count;
    }
    return pace;
  });
}

StepTimes step_times(const std::vector<ReplicaRecording>& recordings, std::int64_t first_step,
                     std::int64_t last_step) {
  const StepEnds ends = step_ends(recordings);
  const Arrivals arrivals = arrivals_of(recordings);
  StepTimes all;
  for (const ReplicaRecording& recording : recordings) {
    const Division division(recording, ends, arrivals);
    for (const auto& [step, times] : division.steps()) {
      if (step >= first_step && step <= last_step)
        all.steps[step].emplace(recording.replica, times);
    }
  }
  std::erase_if(all.steps,
                [&](const auto& step) { return step.second.size() < recordings.size(); });
  return all;
}

std::vector<ReplicaRecording> read_replicas(const Recorder& recorder, const TrackNumbers& after,
                                            Recorder::Names names) {
  std::vector<ReplicaRecording> recordings;
  for (int replica = 0; replica < recorder.replicas(); ++replica) {
    ReplicaRecording recording{.replica = replica};
    bool is_used = false;
    for (std::size_t track = 0; track < Recorder::kTracks; ++track) {
      const auto last = after.find({replica, track});
      const std::uint64_t number = last == after.end() ? 0 : last->second;
      Recorder::Recording its = recorder.read(replica, track, number, names);
      is_used = is_used || its.begun > 0;
      recording.tracks.push_back(std::move(its));
    }
    if (is_used) recordings.push_back(std::move(recording));
  }
  return recordings;
}

std::string doing_text(const std::vector<ReplicaRecording>& recordings) {
  std::vector<std::string> texts;
  for (const ReplicaRecording& recording : recordings) {
    const Span* innermost = nullptr;  // among the open spans
    const Span* last = nullptr;       // among the ended spans
    for (const auto& track : recording.tracks) {
      for (const Span& span : track.spans) {
        if (track.track != "replica" && span.kind != SpanKind::pause) continue;
        if (span.end == 0) innermost = &span;
        if (span.end != 0 && (last == nullptr || span.end > last->end)) last = &span;
      }
    }
    const bool is_waiting = innermost != nullptr && is_call(innermost->kind);
    if (is_waiting || (innermost == nullptr && last == nullptr)) continue;
    const std::uint64_t since = innermost != nullptr ? innermost->begin : last->end;
    const std::string lasts = str(std::round(seconds(recorder_now() - since) * 10) / 10, " s");
    const std::string who = str("replica ", recording.replica, " has been ");
    if (innermost == nullptr)
      texts.push_back(str(who, "in code of its own for ", lasts, ", since ", text_of(*last)));
    else if (innermost->kind == SpanKind::pause)
      texts.push_back(str(who, "stopped for ", lasts));
    else
      texts.push_back(str(who, "in ", text_of(*innermost), " for ", lasts));
  }
  return join(texts, "; ");
}

StepWatch::StepWatch(const Recorder::Track* track) {
  if (track != nullptr) recorder_ = track->recorder();
}

StepTimes StepWatch::next() {
  if (!recorder_) return {};
  const auto recordings = read_replicas(*recorder_, after_, Recorder::Names::left_out);
  StepTimes times = step_times(recordings, last_step_ + 1);
  if (times.steps.empty()) return times;
  last_step_ = times.steps.rbegin()->first;
  for (const ReplicaRecording& recording : recordings) forget(recording);
  return times;
}

// Forgets the spans before the last step, but not that step: at its end the next may begin.
void StepWatch::forget(const ReplicaRecording& recording) {
  std::uint64_t begin = 0;  // that step's
  for (const auto& track : recording.tracks) {
    const auto first = std::ranges::find_if(track.spans, [&](const Span& span) {
      return span.kind == SpanKind::step && span.id == static_cast<std::uint64_t>(last_step_);
    });
    if (track.track == "replica" && first != track.spans.end()) begin = first->begin;
  }
  for (std::size_t track = 0; track < recording.tracks.size(); ++track) {
    std::uint64_t& after = after_[{recording.replica, track}];
    for (const Span& span : recording.tracks[track].spans) {
      if (span.end == 0 || span.begin >= begin) break;
      after = span.number;
    }
  }
}

}  // namespace lockstep::timeline
