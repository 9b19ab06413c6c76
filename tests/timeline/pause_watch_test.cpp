#include "framework/timeline/pause_watch.h"

#include <cstdint>
#include <string>
#include <vector>

#include "tests/catch.h"

using namespace lockstep;
using timeline::PauseWatch;
using timeline::Recorder;
using timeline::SpanKind;

namespace {

constexpr std::uint64_t kSecond = 1'000'000'000;

std::vector<Recorder::Span> pauses_of(const Recorder& recorder, int replica) {
  const auto recording = recorder.read(replica, Recorder::kTracks - 1);
  CHECK((recording.spans.empty() || recording.track == "launcher"));
  for (const Recorder::Span& span : recording.spans) CHECK(span.kind == SpanKind::pause);
  return recording.spans;
}

}  // namespace

TEST_CASE("replicas that did nothing while their launcher was away were paused with it") {
  Recorder recorder(4);
  const auto busy = recorder.take(1, "replica");
  const auto late = recorder.take(2, "replica");
  PauseWatch watch(recorder, {1, 2});
  const std::uint64_t begin = timeline::recorder_now() - 10 * kSecond;
  watch.look(begin);
  watch.look(begin + kSecond / 2);
  CHECK(pauses_of(recorder, 1).empty());
  for (std::uint64_t time = begin + kSecond; time < begin + 4 * kSecond; time += kSecond / 2)
    busy->add({.kind = SpanKind::data}, time, time + kSecond / 4);
  late->add({.kind = SpanKind::data}, begin, begin + 3 * kSecond / 4);
  late->add({.kind = SpanKind::data}, begin + 3 * kSecond, begin + 4 * kSecond - 1);
  watch.look(begin + 4 * kSecond);
  CHECK(pauses_of(recorder, 1).empty());
  const auto pauses = pauses_of(recorder, 2);
  REQUIRE(pauses.size() == 1);
  CHECK(pauses[0].begin == begin + 3 * kSecond / 4);
  CHECK(pauses[0].end == begin + 3 * kSecond);
  watch.look(begin + 6 * kSecond);
  CHECK(pauses_of(recorder, 1).back().end == begin + 6 * kSecond);
  CHECK(pauses_of(recorder, 2).size() == 2);
  CHECK(pauses_of(recorder, 0).empty());
  CHECK(pauses_of(recorder, 3).empty());
}

TEST_CASE("replicas are not paused while their launcher is busy itself") {
  Recorder recorder(1);
  PauseWatch watch(recorder, {0, 1});
  const std::uint64_t begin = timeline::recorder_now() - 10 * kSecond;
  watch.look(begin);
  watch.begin_wait(begin + 3 * kSecond);
  watch.look(begin + 3 * kSecond + kSecond / 2);
  CHECK(pauses_of(recorder, 0).empty());
  watch.begin_wait(begin + 6 * kSecond);
  watch.look(begin + 8 * kSecond);
  const auto pauses = pauses_of(recorder, 0);
  REQUIRE(pauses.size() == 1);
  CHECK(pauses[0].begin == begin + 6 * kSecond);
  CHECK(pauses[0].end == begin + 8 * kSecond);
}

TEST_CASE("a replica that its launcher has seen stopped has that pause alone") {
  Recorder recorder(1);
  PauseWatch watch(recorder, {0, 1});
  const std::uint64_t begin = timeline::recorder_now() - 10 * kSecond;
  const auto launcher = recorder.take_launchers(0);
  const timeline::RecordedSpan pause(launcher.get(), {.kind = SpanKind::pause});
  watch.look(begin);
  watch.look(begin + 3 * kSecond);
  CHECK(pauses_of(recorder, 0).size() == 1);
}

TEST_CASE("a machine's sleep is a pause that says how long it was") {
  Recorder recorder(1);
  PauseWatch watch(recorder, {0, 1});
  const std::uint64_t now = timeline::recorder_now();
  const std::uint64_t asleep = timeline::time_asleep();
  watch.look(now, asleep);
  watch.look(now, asleep + 3600 * kSecond);
  watch.look(now, asleep + 3600 * kSecond + 1);
  const auto pauses = pauses_of(recorder, 0);
  REQUIRE(pauses.size() == 1);
  CHECK(pauses[0].name == "the machine slept for 3600 s");
  CHECK(pauses[0].begin == now);
  CHECK(pauses[0].end == now);
}
