#include "framework/timeline/slow_replica.h"

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <random>
#include <vector>

#include "framework/base/text.h"
#include "tests/catch.h"

using namespace lockstep;
using timeline::StepPace;

namespace {

// Returns 100 steps of replicas whose own work takes 5 ms, and one's `more_ms` longer; with noise
// of `noise_ms`, now and then ten times that. A step is as long as its slowest replica.
std::vector<StepPace> paces(int replicas, double more_ms, double noise_ms, unsigned seed) {
  constexpr int kSlow = 1;
  std::mt19937 draw(seed);
  std::exponential_distribution<double> noise(1);
  std::vector<StepPace> steps(100);
  for (StepPace& step : steps) {
    for (int replica = 0; replica < replicas; ++replica) {
      const double burst = draw() % 20 == 0 ? 10 : 1;
      const double own = 5 + (replica == kSlow ? more_ms : 0) + burst * noise_ms * noise(draw);
      step.own[replica] = 1e-3 * own;
      step.total = std::max(step.total, step.own[replica]);
    }
  }
  return steps;
}

}  // namespace

TEST_CASE("a replica that is 30 % slower is named with what it costs, whatever else goes on") {
  for (const int replicas : {2, 3, 8}) {
    for (unsigned seed = 0; seed < 20; ++seed) {
      INFO(replicas << " replicas, seed " << seed);
      const auto steps = paces(replicas, 1.5, 0.2, seed);
      const auto slow = timeline::slow_replica(steps);
      REQUIRE(slow);
      CHECK(slow->replica == 1);
      // The loss is the median step's against steps with the same noise and no slow replica.
      const auto total = [](const std::vector<StepPace>& all) {
        return timeline::median_of(mapped(all, &StepPace::total));
      };
      const double lost = total(steps) - total(paces(replicas, 0, 0.2, seed));
      CHECK(std::abs(slow->seconds_a_step - lost) < 0.15 * lost);
      CHECK(slow->share == Approx(slow->seconds_a_step / total(steps)));
    }
  }
}

TEST_CASE("nobody is named where replicas are slow by chance, or by little") {
  for (const int replicas : {2, 3, 8}) {
    for (unsigned seed = 0; seed < 20; ++seed) {
      INFO(replicas << " replicas, seed " << seed);
      CHECK(!timeline::slow_replica(paces(replicas, 0, 0.2, seed)));
      CHECK(!timeline::slow_replica(paces(replicas, 0, 5, seed)));
      CHECK(!timeline::slow_replica(paces(replicas, 0.3, 0, seed)));
    }
  }
  CHECK(!timeline::slow_replica({}));
  CHECK(!timeline::slow_replica({{.own = {{0, 1}}, .total = 1}}));
}

TEST_CASE("a replica that is slow in most steps is named with the median step's cost") {
  std::vector<StepPace> steps(10, {.own = {{0, 1}, {1, 1}, {2, 2}}, .total = 4});
  for (std::size_t i = 0; i < 4; ++i) steps[i].own = {{0, 9}, {1, 1}, {2, 1}};
  CHECK(!timeline::slow_replica(steps));  // in 6 of 10
  steps[0].own = {{0, 1}, {1, 1}, {2, 2}};
  const auto slow = timeline::slow_replica(steps);
  REQUIRE(slow);
  CHECK((slow->replica == 2 && slow->steps == 7));
  CHECK(slow->seconds_a_step == 1);
  CHECK(slow->share == 0.25);
}

TEST_CASE("replicas wait for the slowest of each step") {
  CHECK(timeline::waiting_share({}) == 0);
  CHECK(timeline::waiting_share({{.own = {{0, 1}, {1, 3}}, .total = 4},
                                 {.own = {{0, 3}, {1, 3}}, .total = 4}}) == Approx(2.0 / 16));
}

TEST_CASE("what a replica does in a step is told by medians") {
  CHECK(timeline::replica_work({}).empty());
  const std::vector<StepPace> steps{
      {.own = {{0, 1}, {1, 4}}}, {.own = {{0, 2}, {1, 5}}}, {.own = {{0, 90}, {1, 7}}}};
  const auto work = timeline::replica_work(steps);
  REQUIRE(work.size() == 2);
  CHECK((work.at(0).own == 2 && work.at(1).own == 5));
  CHECK((work.at(0).waiting == 3 && work.at(1).waiting == 0));
}

TEST_CASE("a replica's own work is all but its calls, each counted once") {
  timeline::Recorder recorder(1);
  const auto track = recorder.take(0, "replica");
  timeline::OwnWork work;
  CHECK(work.next(nullptr) == 0);
  const std::uint64_t begin = timeline::recorder_now();
  CHECK(work.next(track.get()) == 0);
  {
    const timeline::RecordedSpan update(track.get(), {.kind = timeline::SpanKind::update});
    const timeline::RecordedSpan call(track.get(),
                                      {.kind = timeline::SpanKind::collective, .id = 1});
    const timeline::RecordedSpan inner(track.get(),
                                       {.kind = timeline::SpanKind::collective, .id = 2});
    while (timeline::recorder_now() < begin + 2'000'000) continue;
  }
  const std::uint64_t called = timeline::recorder_now();
  while (timeline::recorder_now() < called + 1'000'000) continue;
  const double own = work.next(track.get());
  const double all = 1e-9 * static_cast<double>(timeline::recorder_now() - begin);
  const auto spans = track->read(0).spans;
  REQUIRE(spans.size() == 3);
  const double in_calls = 1e-9 * static_cast<double>(spans[1].end - spans[1].begin);
  CHECK(own >= 0.001);
  CHECK(own <= all - in_calls);
  CHECK(work.next(track.get()) <= 1e-9 * static_cast<double>(timeline::recorder_now() - called));
}
