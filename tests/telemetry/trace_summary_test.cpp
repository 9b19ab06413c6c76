#include "framework/telemetry/trace_summary.h"

#include <cstdint>
#include <vector>

#include "tests/catch.h"

namespace lockstep {

using timeline::Recorder;
using timeline::ReplicaRecording;
using timeline::SpanKind;
using timeline::Trace;

namespace {

// Steps 5 to 8 of 100 ms each, in which a replica computes for so many of them, waits for its call
// until ms 90, and updates. Beside it a call of 20 ms goes on.
ReplicaRecording made(int replica, const std::vector<std::uint64_t>& computes) {
  constexpr std::uint64_t kMs = 1'000'000;
  Recorder::Recording own{.track = "replica", .begun = 0, .spans = {}};
  Recorder::Recording beside{.track = "gathers", .begun = 0, .spans = {}};
  for (std::uint64_t i = 0; i < computes.size(); ++i) {
    const std::uint64_t step = 5 + i;
    const std::uint64_t begin = 1000 + 100 * i;
    const auto add = [&](Recorder::Recording& track, SpanKind kind, std::uint64_t from,
                         std::uint64_t to, std::uint64_t id) {
      track.spans.push_back({.number = ++track.begun,
                             .kind = kind,
                             .begin = (begin + from) * kMs,
                             .end = (begin + to) * kMs,
                             .id = id});
    };
    add(own, SpanKind::step, 0, 100, step);
    add(own, SpanKind::data, 0, 2, step);
    add(own, SpanKind::forward, 2, computes[i] - 10, step);
    add(own, SpanKind::backward, computes[i] - 10, 90, step);
    add(own, SpanKind::reduction, computes[i], 90, 1000 + step);
    add(own, SpanKind::update, 90, 100, step);
    add(beside, SpanKind::gather, 0, 20, 2000 + step);
  }
  return {replica, {own, beside}};
}

}  // namespace

TEST_CASE("a summary names the replica that others waited for, and what it costs", "[trace]") {
  const Trace trace{
      .first = 5,
      .last = 8,
      .hosts = {
          {.name = "a", .replicas = {made(0, {50, 50, 50, 50})}},
          {.name = "b", .error = 12'345, .is_cut = true, .replicas = {made(1, {80, 80, 40, 80})}}}};
  CHECK(trace_summary(trace) ==
        R"(steps 5 to 8, 2 replicas on 2 hosts: 4 whole steps, median 100.00 ms of training
host 1 had more spans than a trace has
host 1's clock is within 0.012 ms of host 0's

ms a step  data  forward  backward  exposed communication  (hidden)  update  in all
replica 0  2.00    38.00     10.00                  40.00     20.00   10.00  100.00
replica 1  2.00    58.00     10.00                  20.00     20.00   10.00  100.00

idle, ms a step  for bytes  for data  paused  for others
replica 0            17.50      2.00    0.00  22.50 for replica 1
replica 1            17.50      2.00    0.00  2.50 for replica 0

Replicas wait for each other in 12.5 % of the time of training.
Replica 1 is slow: in 3 of 4 steps it is the slowest, mostly in its forward.
With the pace of the slowest of the others the median step takes 30.00 ms less (30.0 %): the run would be 1.43 times as fast.
)");
}

TEST_CASE("a summary names nobody where differences are small", "[trace]") {
  const auto summary = [](const std::vector<ReplicaRecording>& replicas) {
    return trace_summary({.first = 5, .last = 8, .hosts = {{.name = "a", .replicas = replicas}}});
  };
  // Each is the last one now and then.
  const std::string none = summary({made(0, {50, 80, 50, 80}), made(1, {80, 50, 80, 50})});
  CHECK(
      none.ends_with("\nReplicas wait for each other in 15.0 % of the time of training. None is "
                     "slow: no replica's own "
                     "work makes steps longer by more than a tenth.\n"));
  const std::string one = summary({made(0, {50, 50, 50, 50})});
  CHECK(one.find("1 replica on 1 host: 4 whole steps") != std::string::npos);
  CHECK(one.ends_with(
      "\nReplicas wait for each other in 0.0 % of the time of training: there is one.\n"));
  CHECK(summary({}) == "steps 5 to 8, 0 replicas on 1 host: no step is whole\n");
  CHECK(trace_summary({}) == "steps 0 to 0, 0 replicas on 0 hosts: no step is whole\n");
}

TEST_CASE("a summary tells the rates of links, and names the slow one", "[trace]") {
  // 1 MB at a time from the other host.
  const auto host = [](int replica, std::uint64_t from, std::uint64_t microseconds) {
    ReplicaRecording recording = made(replica, {50, 50, 50, 50});
    Recorder::Recording track{.track = "network", .begun = 0, .spans = {}};
    for (std::uint64_t i = 0; i < 10; ++i) {
      const std::uint64_t begin = 1'000'000'000 + 10'000'000 * i;
      track.spans.push_back({.number = ++track.begun,
                             .kind = SpanKind::transfer,
                             .begin = begin,
                             .end = begin + 1'000 * microseconds,
                             .bytes = 1'000'000,
                             .id = from});
    }
    recording.tracks.push_back(track);
    return recording;
  };
  const auto summary = [&](std::uint64_t microseconds) {
    return trace_summary({.first = 5,
                          .last = 8,
                          .hosts = {{.name = "a", .replicas = {host(0, 1, microseconds)}},
                                    {.name = "b", .replicas = {host(1, 0, 8'000)}}}});
  };
  CHECK(summary(80'000).ends_with(R"(
bytes come             MB/s
from host 0 to host 1   125
from host 1 to host 0  12.5

Slow is the link from host 1 to host 0: 12.5 MB/s, where others have 125.
With their rate the median step takes 40.00 ms less (40.0 %): the run would be 1.67 times as fast.
)"));
  CHECK(summary(16'000).ends_with("from host 1 to host 0  62.5\n"));
}

}  // namespace lockstep
