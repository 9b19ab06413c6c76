#include "framework/telemetry/failure_record.h"

#include <cstdint>
#include <filesystem>
#include <string>
#include <vector>

#include "framework/base/errors.h"
#include "framework/base/text.h"
#include "tests/catch.h"
#include "tests/support/files.h"
#include "tests/support/temporary_folder.h"

using namespace lockstep;
using namespace lockstep::testing;
using timeline::SpanKind;

namespace {

constexpr std::uint64_t kMs = 1'000'000;
constexpr std::uint64_t kNoticed = 100'000 * kMs;

// A replica's span, from `begin` ms before the failure was noticed to `end` ms before; -1: on.
timeline::Recorder::Span event(SpanKind kind, std::uint64_t begin, std::int64_t end,
                               std::uint64_t id, const std::string& name = "") {
  return {.kind = kind,
          .name = name,
          .begin = kNoticed - begin * kMs,
          .end = end < 0 ? 0 : kNoticed - static_cast<std::uint64_t>(end) * kMs,
          .bytes = 8,
          .id = id};
}

timeline::ReplicaRecording recording(int replica, std::vector<timeline::Recorder::Span> spans) {
  return {replica, {{.track = "replica", .begun = spans.size(), .spans = std::move(spans)}}};
}

// Replica 1 of 3 is killed in its forward, for which the others wait.
JobFailure killed() {
  JobFailure failure{.verdict = "replica 1 (pid 7) was lost: killed by signal 9 (Killed)",
                     .restarts = 2,
                     .noticed = kNoticed};
  for (const int replica : {0, 1, 2}) {
    std::vector<timeline::Recorder::Span> spans{
        event(SpanKind::step, 900, 600, 6),
        event(SpanKind::collective, 700, 601, 70, "barrier over 'data' at a.cpp:1"),
        event(SpanKind::step, 600, -1, 7)};
    if (replica == 1) {
      spans.push_back(event(SpanKind::forward, 550, -1, 7));
    } else {
      spans.push_back(event(SpanKind::forward, 550, 500, 7));
      spans.push_back(event(SpanKind::reduction, 412, -1, 71, "pmean over 'data' at b.cpp:2"));
    }
    failure.replicas.push_back(recording(replica, spans));
  }
  return failure;
}

std::string without_time(std::string text) {
  const std::string at = "at ";
  const auto begin = text.find(at) + at.size();
  return text.replace(begin, std::string("2026-11-27 12:00:17 UTC").size(), "T");
}

}  // namespace

TEST_CASE("a record of a failure says what each replica did, also the one that was killed") {
  const TemporaryFolder folder;
  CHECK(failure_files(folder.path()).empty());
  write_failure(folder.path() / "run", failure_record(killed(), "Lockstep 1, LibTorch 2"));
  const auto files = failure_files(folder.path() / "run");
  REQUIRE(files == std::vector{folder.path() / "run" / "failure.json"});
  const FailureRecord record = read_failure(files[0]);
  REQUIRE(record.replicas.size() == 3);
  CHECK(record.replicas[1].step == 7);
  const FailureRecord::Event& forward = record.replicas[1].events.back();
  CHECK(forward.kind == "forward");
  CHECK(forward.begin_s == Approx(-0.55));
  CHECK(!forward.end_s);
  CHECK(forward.id == "7");
  CHECK(record.replicas[0].events[1].end_s.value() == Approx(-0.601));
  CHECK(record.replicas[0].events[1].id == "0000000000000046");
  CHECK(record.replicas[0].events[1].bytes == 8);
  CHECK(without_time(failure_text({record})) ==
        "the job failed at T, started again 2 times:\n"
        "  replica 1 (pid 7) was lost: killed by signal 9 (Killed)\n"
        "replicas 0, 2: in pmean over 'data' at b.cpp:2, step 7, to which replica 1 had not "
        "come, for 0.412 s\n"
        "replica 1: in its forward, step 7, for 0.550 s; its last call was barrier over 'data' "
        "at a.cpp:1\n"
        "Lockstep 1, LibTorch 2\n");
}

TEST_CASE("people are told which replica was stopped, and which had come back from its last call") {
  JobFailure failure{.verdict = "Timeout", .noticed = kNoticed};
  failure.replicas = {
      recording(0, {event(SpanKind::step, 600, 500, 6), event(SpanKind::update, 550, 501, 6)}),
      recording(1, {event(SpanKind::step, 600, -1, 7)}),
      recording(2, {event(SpanKind::collective, 412, 2, 71, "pmean")}),
      recording(3, {event(SpanKind::collective, 411, -1, 71, "pmean")})};
  failure.replicas[1].tracks.push_back(
      {.track = "launcher", .begun = 1, .spans = {event(SpanKind::pause, 400, -1, 0)}});
  CHECK(without_time(failure_text({failure_record(failure, "v")})) ==
        "the job failed at T:\n"
        "  Timeout\n"
        "replica 0: in code of its own since its update, step 6, for 0.501 s\n"
        "replica 1: stopped by a signal, in step 7, for 0.600 s\n"
        "replicas 2, 3: in pmean, to which replicas 0, 1 had not come, for 0.410 s\n"
        "v\n");
}

TEST_CASE("hosts that share a run's folder leave a record each, of which people read one text") {
  const TemporaryFolder folder;
  JobFailure failure = killed();
  failure.hosts = 12;
  failure.verdict = "one\ntwo\nthree\nfour\nfive";
  failure.starts_again = true;
  for (const std::int64_t host : {11, 0, 2}) {
    failure.host = host;
    write_failure(folder.path(), failure_record(failure, ""));
  }
  (void)folder.write("failure.host-x.json", "{}");
  const auto files = failure_files(folder.path());
  REQUIRE(files.size() == 3);
  CHECK(files[2].filename() == "failure.host-11.json");
  std::vector<FailureRecord> records;
  for (const auto& file : files) records.push_back(read_failure(file));
  CHECK(records[1].host == 2);
  CHECK(records[1].starts_again);
  CHECK_THAT(failure_text(records),
             ContainsSubstring("on 12 hosts, and was started again:\n  one\n  two\n  three\n"
                               "  … and 2 more lines of \"verdict\" in failure.json\n"));
}

TEST_CASE("of each replica a record has the last events, and all that go on") {
  std::vector<timeline::Recorder::Span> spans{event(SpanKind::evaluation, 9999, -1, 3)};
  for (std::uint64_t i = 0; i < 250; ++i) {
    spans.push_back(event(SpanKind::data, 1000 - i, static_cast<std::int64_t>(999 - i), 0));
  }
  JobFailure failure{.noticed = kNoticed};
  failure.replicas = {recording(4, spans), recording(5, {})};
  const FailureRecord record = failure_record(failure, "");
  const auto& events = record.replicas[0].events;
  REQUIRE(events.size() == kFailureEvents);
  CHECK(events[0].kind == "evaluation");
  CHECK(events[1].begin_s == Approx(-0.849));
  CHECK(events.back().begin_s == Approx(-0.751));
  CHECK(record.replicas[1].events.empty());
  CHECK_THAT(failure_text({record}), ContainsSubstring("replica 4: in its evaluation") &&
                                         ContainsSubstring("replica 5: nothing is recorded"));
}

TEST_CASE("operators take no other event's place, and the one that goes on is told") {
  JobFailure failure = killed();
  timeline::Recorder::Recording operators{.track = "operators", .begun = 0, .spans = {}};
  for (std::uint64_t i = 0; i < 250; ++i) {
    operators.spans.push_back(
        event(SpanKind::operation, 540 - i, static_cast<std::int64_t>(540 - i), 0, "aten::relu"));
  }
  operators.spans.push_back(event(SpanKind::operation, 100, -1, 0, "aten::conv2d"));
  failure.replicas[1].tracks.push_back(operators);
  const FailureRecord record = failure_record(failure, "");
  CHECK(record.replicas[1].events.size() == 4 + kFailureEvents);
  CHECK_THAT(failure_text({record}),
             ContainsSubstring("replica 1: in its forward, aten::conv2d, step 7, for 0.550 s"));
}

TEST_CASE("a record that is damaged, or cut short, is an error with the file's name") {
  const TemporaryFolder folder;
  write_failure(folder.path(), failure_record(killed(), "v"));
  const auto file = folder.path() / "failure.json";
  const std::string text = read_text(file);
  std::vector<std::string> wrong{"", "[]", "null", "{}", "{\"time\": 3}", "\xff\xfe"};
  for (std::size_t size = 1; size + 2 < text.size(); size += 97) {
    wrong.push_back(text.substr(0, size));
  }
  for (const std::string& each : wrong) {
    write_text(file, each);
    CHECK_THROWS_WITH(
        read_failure(file),
        ContainsSubstring(file.string() + " is damaged, or no record of a failure: "));
  }
  CHECK_THROWS_AS(read_failure(folder.path() / "none"), DataError);
}
