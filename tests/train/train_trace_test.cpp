#include <algorithm>
#include <csignal>
#include <string>
#include <vector>

#include "framework/telemetry/trace_file.h"
#include "framework/timeline/recorder.h"
#include "tests/catch.h"
#include "tests/support/ended.h"
#include "tests/support/files.h"
#include "tests/train/train_in_fork.h"
#include "tests/train/train_program.h"

using namespace lockstep;
using namespace lockstep::testing;

TEST_CASE("train has a run that goes on write a trace, and says what it tells") {
  const TemporaryFolder folder;
  folder.write("a.yaml",
               "model: {name: mlp, hidden: [256]}\ndata: {name: synthetic}\n"
               "trainer: {steps: 1000000000}\ntelemetry: {operators: true, tensorboard: false}\n");
  ChildProgram program(training(
      folder.path(), {"--config", "a.yaml", "--replicas", "2", "--output", "run", "--quiet"}));
  REQUIRE(eventually([&] { return has_logged(folder.path() / "run"); }));
  const Ended asked = train(folder.path(), {"trace", "run", "--timeout", "60"});
  INFO(asked.err);
  REQUIRE(asked.status == 0);
  CHECK(asked.out == "run/trace.json\n");
  REQUIRE(::kill(program.pid(), SIGINT) == 0);
  check_status(program.wait(), 130);

  const timeline::Trace trace = read_trace(folder.path() / "run/trace.json");
  CHECK(trace.last == trace.first + 9);
  REQUIRE(trace.hosts.size() == 1);
  REQUIRE(trace.hosts[0].replicas.size() == 2);
  for (const timeline::ReplicaRecording& recording : trace.hosts[0].replicas) {
    std::vector<timeline::SpanKind> kinds;
    bool has_operator = false;
    for (const timeline::Recorder::Recording& track : recording.tracks) {
      for (const timeline::Recorder::Span& span : track.spans) {
        kinds.push_back(span.kind);
        has_operator = has_operator || span.name == "aten::addmm";
      }
    }
    CHECK(has_operator);
    CHECK(std::ranges::count(kinds, timeline::SpanKind::step) >= 10);
    CHECK(std::ranges::count(kinds, timeline::SpanKind::forward) >= 10);
    CHECK(std::ranges::count(kinds, timeline::SpanKind::update) >= 10);
  }
  CHECK_THAT(read_text(folder.path() / "run/trace.json"),
             ContainsSubstring("\"name\":\"memory of worker 1\"") &&
                 ContainsSubstring("\"name\":\"bytes moved by replica 1\""));
  const Ended summary = train(folder.path(), {"trace", "--summary", "run"});
  CHECK(summary.status == 0);
  CHECK_THAT(summary.out, ContainsSubstring(", 2 replicas on 1 host: 10 whole steps, median ") &&
                              ContainsSubstring("\nReplicas wait for each other in "));
  check_refused(folder.path(), {"trace", "run"},
                "the run in run is not going on: telemetry.trace, as [100, 110], lets a run write "
                "a trace of its steps");
}
