#include "framework/timeline/step_times.h"

#include <cstdint>
#include <map>
#include <string>
#include <vector>

#include "tests/catch.h"

using namespace lockstep;
using timeline::Recorder;
using timeline::ReplicaRecording;
using timeline::ReplicaTimes;
using timeline::SpanKind;
using timeline::StepTimes;
using timeline::StepWatch;
using timeline::TimePart;

namespace {

constexpr std::uint64_t kMs = 1'000'000;

// A track made of spans whose times are in ms.
class Made {
 public:
  explicit Made(std::string name = "replica") { recording_.track = std::move(name); }

  Made& span(SpanKind kind, std::uint64_t begin, std::uint64_t end, std::uint64_t id = 0) {
    recording_.spans.push_back({.number = ++recording_.begun,
                                .kind = kind,
                                .begin = begin * kMs,
                                .end = end * kMs,
                                .id = id});
    return *this;
  }
  operator Recorder::Recording() const { return recording_; }  // NOLINT: reads better

 private:
  Recorder::Recording recording_;
};

// Adds step `number` from `begin` to begin + 100: data, forward and backward, and an update. A
// replica computes for so long, then waits in the call 1000 + `number` until begin + 90.
void add_step(Made& track, std::uint64_t number, std::uint64_t begin, std::uint64_t computes) {
  const std::uint64_t arrival = begin + computes;
  track.span(SpanKind::step, begin, begin + 100, number)
      .span(SpanKind::data, begin, begin + 5)
      .span(SpanKind::forward, begin + 5, begin + 20, number)
      .span(SpanKind::backward, begin + 20, begin + 90, number)
      .span(SpanKind::reduction, arrival, begin + 90, 1000 + number)
      .span(SpanKind::update, begin + 92, begin + 99, number);
}

void check_parts(const ReplicaTimes& times, const std::map<TimePart, double>& milliseconds) {
  for (std::size_t i = 0; i < timeline::kTimeParts.size(); ++i) {
    const auto part = static_cast<TimePart>(i);
    const auto expected = milliseconds.find(part);
    INFO(timeline::kTimeParts[i]);
    CHECK(times.of(part) == Approx(expected == milliseconds.end() ? 0 : expected->second * 1e-3));
  }
}

}  // namespace

TEST_CASE("a step's time is divided among its innermost spans, and what others are waited for") {
  Made first;
  Made second;
  add_step(first, 7, 200, 50);
  add_step(second, 7, 200, 80);
  const StepTimes times = timeline::step_times({{0, {first}}, {1, {second}}});
  REQUIRE(times.steps.size() == 1);
  const auto& replicas = times.steps.at(7);
  check_parts(replicas.at(0), {{TimePart::data, 5},
                               {TimePart::forward, 15},
                               {TimePart::backward, 30},
                               {TimePart::communication, 40},
                               {TimePart::update, 7},
                               {TimePart::other, 3}});
  CHECK(replicas.at(0).total() == Approx(0.1));
  CHECK(replicas.at(0).own() == Approx(0.06));
  CHECK(replicas.at(0).waited_for == std::map<int, double>{{1, replicas.at(0).waited()}});
  CHECK(replicas.at(0).waited() == Approx(0.03));
  CHECK(replicas.at(1).of(TimePart::communication) == Approx(0.01));
  CHECK(replicas.at(1).waited_for.empty());
  CHECK(times.waiting_share() == Approx(0.15));
}

TEST_CASE("who ends a call before another comes to it has not waited for that one") {
  // Replica 1 is the second to come, and ends the call with replica 0; replica 2 comes later.
  Made tracks[3];
  const std::uint64_t begins[] = {10, 20, 60};
  const std::uint64_t ends[] = {30, 30, 70};
  for (int i = 0; i < 3; ++i) {
    tracks[i].span(SpanKind::step, 0, 100, 1).span(SpanKind::collective, begins[i], ends[i], 55);
  }
  const auto sums =
      timeline::step_times({{0, {tracks[0]}}, {1, {tracks[1]}}, {2, {tracks[2]}}}).sums();
  CHECK(sums.at(0).waited_for.size() == 1);
  CHECK(sums.at(0).waited_for.at(1) == Approx(0.01));
  CHECK(sums.at(1).waited_for.empty());
  CHECK(sums.at(2).waited_for.empty());
}

TEST_CASE("calls beside a replica are hidden but for what it waits for") {
  // Both begin to reduce at 20 and 40, and wait from 50 and 58 on: only for the network. In the
  // second step replica 0 waits from 150 on for replica 1, which begins to reduce at 170.
  const Made first = Made()
                         .span(SpanKind::step, 0, 100, 1)
                         .span(SpanKind::reduction, 50, 60, 9)
                         .span(SpanKind::step, 100, 200, 2)
                         .span(SpanKind::reduction, 150, 180, 10);
  const Made second = Made()
                          .span(SpanKind::step, 0, 100, 1)
                          .span(SpanKind::reduction, 58, 60, 9)
                          .span(SpanKind::step, 100, 200, 2)
                          .span(SpanKind::reduction, 175, 180, 10);
  const Made first_beside = Made("reductions")
                                .span(SpanKind::reduction, 20, 60, 9)
                                .span(SpanKind::reduction, 120, 180, 10);
  const Made second_beside = Made("reductions")
                                 .span(SpanKind::reduction, 40, 60, 9)
                                 .span(SpanKind::reduction, 170, 180, 10);
  const StepTimes times =
      timeline::step_times({{0, {first, first_beside}}, {1, {second, second_beside}}});
  const ReplicaTimes& one = times.steps.at(1).at(0);
  CHECK(one.of(TimePart::communication) == Approx(0.01));
  CHECK(one.hidden == Approx(0.03));
  CHECK(one.waited() == 0);
  const ReplicaTimes& two = times.steps.at(2).at(0);
  CHECK(two.waited_for.at(1) == Approx(0.02));
  CHECK(two.hidden == Approx(0.03));
  CHECK(times.steps.at(2).at(1).hidden == Approx(0.005));
}

TEST_CASE("a pause takes the time of whatever it is in") {
  Made track;
  add_step(track, 1, 0, 40);
  const Made launcher = Made("launcher").span(SpanKind::pause, 10, 50);
  const auto sums = timeline::step_times({{0, {track, launcher}}}).sums();
  check_parts(sums.at(0), {{TimePart::data, 5},
                           {TimePart::forward, 5},
                           {TimePart::backward, 0},
                           {TimePart::communication, 40},
                           {TimePart::update, 7},
                           {TimePart::pause, 40},
                           {TimePart::other, 3}});
}

TEST_CASE(
    "evaluations and checkpoints between steps are in the step that follows, and nobody's own") {
  Made tracks[2];
  for (Made& track : tracks) {
    add_step(track, 1, 0, 80);
    track.span(SpanKind::evaluation, 100, 700, 1)
        .span(SpanKind::forward, 110, 600)
        .span(SpanKind::collective, 600, 690, 77)
        .span(SpanKind::checkpoint, 700, 900, 1);
    add_step(track, 2, 1000, 80);
  }
  const StepTimes times = timeline::step_times({{0, {tracks[0]}}, {1, {tracks[1]}}});
  CHECK(times.steps.at(1).at(0).total() == Approx(0.1));
  const ReplicaTimes& second = times.steps.at(2).at(0);
  check_parts(second, {{TimePart::data, 5},
                       {TimePart::forward, 15},
                       {TimePart::backward, 60},
                       {TimePart::communication, 10},
                       {TimePart::update, 7},
                       {TimePart::evaluation, 600},
                       {TimePart::checkpoint, 200},
                       {TimePart::other, 3}});
  CHECK(second.total() == Approx(0.9));
  CHECK(second.of_training() == Approx(0.1));
  CHECK(second.own() == Approx(0.09));
  CHECK(times.paces().at(1).total == Approx(0.1));
}

TEST_CASE("steps that not all have, or that go on, are left out, as are those not asked for") {
  Made first;
  Made second;
  for (std::uint64_t step = 1; step <= 5; ++step) add_step(first, step, 100 * step, 50);
  for (std::uint64_t step = 3; step <= 4; ++step) add_step(second, step, 100 * step, 50);
  const std::vector<ReplicaRecording> both{{0, {first}}, {1, {second}}};
  CHECK(timeline::step_times(both).steps.size() == 2);
  CHECK(timeline::step_times(both, 4).steps.size() == 1);
  CHECK(timeline::step_times(both, 0, 3).steps.count(3) == 1);
  CHECK(timeline::step_times(both, 5).steps.empty());
  CHECK(timeline::step_times({}).waiting_share() == 0);
  CHECK(!timeline::step_times({}).slow());
}

TEST_CASE("a step that one replica has ended is over for the others, whose last spans go on") {
  Made first;
  Made second;
  add_step(first, 1, 0, 50);
  second.span(SpanKind::step, 0, 0, 1)
      .span(SpanKind::forward, 5, 60, 1)
      .span(SpanKind::update, 80, 0, 1)
      .span(SpanKind::gather, 95, 0, 77);
  const StepTimes times = timeline::step_times({{0, {first}}, {1, {second}}});
  REQUIRE(times.steps.size() == 1);
  check_parts(times.steps.at(1).at(1), {{TimePart::forward, 55},
                                        {TimePart::update, 15},
                                        {TimePart::communication, 5},
                                        {TimePart::other, 25}});
  CHECK(timeline::step_times({{1, {second}}}).steps.empty());
}

TEST_CASE("it is told what replicas are in, or have been in last, that wait for nobody") {
  Recorder recorder(4);
  const auto first = recorder.take(0, "replica");
  const auto second = recorder.take(1, "replica");
  const auto third = recorder.take(2, "replica");
  const timeline::RecordedSpan step(first.get(), {.kind = SpanKind::step, .id = 7});
  const timeline::RecordedSpan forward(first.get(), {.kind = SpanKind::forward, .id = 7});
  const timeline::RecordedSpan others(second.get(), {.kind = SpanKind::step, .id = 7});
  const timeline::RecordedSpan call(second.get(), {.kind = SpanKind::collective, .id = 5});
  const auto fourth = recorder.take(3, "replica");
  fourth->end_step(5);
  fourth->end_step(6);
  const timeline::RecordedSpan data(third.get(), {.kind = SpanKind::data});
  const auto launcher = recorder.take_launchers(2);
  {
    const timeline::RecordedSpan pause(launcher.get(), {.kind = SpanKind::pause});
    CHECK_THAT(timeline::doing_text(timeline::read_replicas(recorder)),
               ContainsSubstring("; replica 2 has been stopped for 0 s"));
  }
  CHECK(timeline::doing_text(timeline::read_replicas(recorder)) ==
        "replica 0 has been in its forward of step 7 for 0 s; replica 2 has been in its data for "
        "0 s; replica 3 has been in code of its own for 0 s, since step 6");
}

TEST_CASE("the replica that makes steps longer by more than a tenth is the slow one") {
  const auto slow = [](const std::vector<std::uint64_t>& computes) {
    std::vector<ReplicaRecording> recordings;
    for (const std::uint64_t its : computes) {
      Made track;
      for (std::uint64_t step = 1; step <= 3; ++step) add_step(track, step, 100 * step, its);
      recordings.push_back({static_cast<int>(recordings.size()), {track}});
    }
    return timeline::step_times(recordings).slow();
  };
  const auto found = slow({40, 50, 80, 30});
  REQUIRE(found);
  CHECK(found->replica == 2);
  CHECK(found->seconds_a_step == Approx(0.03));
  CHECK(found->share == Approx(0.3));
  CHECK(found->steps == 3);
  CHECK(!slow({40, 80, 80, 30}));  // without one of them the other is as slow
  CHECK(!slow({50, 59}));
  CHECK(slow({50, 61})->replica == 1);
  CHECK(!slow({50}));
}

TEST_CASE("a watch tells of each step once, whether loops record steps or not") {
  for (const bool has_steps : {true, false}) {
    Recorder recorder(3);
    const auto first = recorder.take(0, "replica");
    const auto second = recorder.take(2, "replica");  // 1 is on another host
    StepWatch steps(first.get());
    CHECK(steps.next().steps.empty());
    std::uint64_t done = 0;
    const auto go = [&](std::uint64_t count) {
      for (const std::uint64_t end = done + count; done < end;) {
        ++done;
        for (Recorder::Track* const track : {first.get(), second.get()}) {
          {
            const timeline::RecordedSpan step(has_steps ? track : nullptr,
                                              {.kind = SpanKind::step, .id = done});
            const timeline::RecordedSpan update(track, {.kind = SpanKind::update, .id = done});
          }
          if (!has_steps) track->end_step(done);
        }
      }
    };
    std::uint64_t told = has_steps ? 0 : 1;  // nobody knows when the first step has begun
    for (const std::uint64_t count : std::vector<std::uint64_t>{1, 3, 20, 1, Recorder::kSpans}) {
      go(count);
      const StepTimes times = steps.next();
      if (count < Recorder::kSpans / 3) CHECK(times.steps.size() == done - told);
      if (!times.steps.empty()) {
        CHECK(times.steps.rbegin()->first == static_cast<std::int64_t>(done));
        CHECK(times.steps.begin()->first > static_cast<std::int64_t>(told));
        CHECK(times.steps.begin()->second.size() == 2);
      }
      CHECK(!times.steps.empty() == (done > told));
      told = done;
    }
    CHECK(steps.next().steps.empty());
  }
  CHECK(StepWatch(nullptr).next().steps.empty());
}
