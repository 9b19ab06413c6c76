#include "trainers/run/run_trace.h"

#include <chrono>
#include <cstddef>
#include <cstdint>
#include <filesystem>
#include <functional>
#include <future>
#include <string>
#include <thread>
#include <vector>

#include "framework/base/errors.h"
#include "framework/collectives/in_place.h"
#include "framework/collectives/psum.h"
#include "framework/launch/launch.h"
#include "framework/telemetry/run_folder.h"
#include "framework/telemetry/trace_file.h"
#include "framework/timeline/recorder.h"
#include "tests/catch.h"
#include "tests/support/captured_stderr.h"
#include "tests/support/files.h"
#include "tests/support/message_of.h"

namespace fs = std::filesystem;

namespace lockstep {

using namespace testing;
using std::chrono::seconds;

namespace {

// Two replicas do steps together while replica 0 says that they go on.
int run_steps(const TraceOptions& trace, const std::function<bool(std::int64_t)>& goes_on) {
  const auto replica = [&] {
    for (std::int64_t step = 1; psum(goes_on(step) ? 1 : 0, "data") == 2; ++step) {
      const timeline::RecordedSpan span(
          timeline::track_here,
          {.kind = timeline::SpanKind::step, .id = static_cast<std::uint64_t>(step)});
      barrier("data");
    }
  };
  return launch(replica, {.replicas = 2, .mode = LaunchMode::threads, .trace = trace});
}

}  // namespace

TEST_CASE("a run writes the trace of its config's steps", "[trace]") {
  const TemporaryFolder home;
  const fs::path folder = home.path();
  REQUIRE(run_steps(trace_options(folder, {2, 3}), [](std::int64_t step) { return step < 6; }) ==
          0);
  const timeline::Trace trace = read_trace(folder / kTraceFile);
  CHECK(trace.first == 2);
  CHECK(trace.last == 3);
  CHECK(!trace.versions.at("lockstep").empty());
  REQUIRE(trace.hosts.size() == 1);
  REQUIRE(trace.hosts[0].replicas.size() == 2);
  for (const timeline::ReplicaRecording& recording : trace.hosts[0].replicas) {
    std::vector<std::uint64_t> steps;
    std::size_t calls = 0;
    for (const timeline::Recorder::Span& span : recording.tracks.at(0).spans) {
      if (span.kind == timeline::SpanKind::step) steps.push_back(span.id);
      if (span.kind == timeline::SpanKind::collective) ++calls;
    }
    CHECK(steps == std::vector<std::uint64_t>{2, 3});
    CHECK(calls >= 3);
  }
}

TEST_CASE("a run that goes on writes the trace of its next steps when asked", "[trace]") {
  const TemporaryFolder home;
  const fs::path folder = home.path() / "run";
  CHECK(message_of<ValueError>([&] { (void)request_trace(folder, seconds(1)); }) ==
        folder.string() + " holds no run: name the folder of one that goes on");
  std::future<fs::path> asked;
  {
    const RunFolderLock lock = claim_run_folder(folder, "model: {name: mlp}\n");
    asked = std::async(std::launch::async, [&] { return request_trace(folder, seconds(60)); });
    const auto is_there = [&] { return fs::exists(folder / kTraceFile); };
    REQUIRE(run_steps(trace_options(folder, {1'000'000, 1'000'001}),
                      [&](std::int64_t) { return !is_there(); }) == 0);
    CHECK(asked.get() == folder / kTraceFile);
    CHECK(!fs::exists(folder / kTraceRequest));
    const timeline::Trace trace = read_trace(folder / kTraceFile);
    CHECK(trace.first > 1);
    CHECK(trace.last == trace.first + kRequestedSteps - 1);

    // Of a run that has no step left.
    asked = std::async(std::launch::async, [&] { return request_trace(folder, seconds(60)); });
    while (!fs::exists(folder / kTraceRequest)) std::this_thread::yield();
    CHECK(message_of<ValueError>([&] { (void)request_trace(folder, seconds(1)); }) ==
          "a trace of the run in " + folder.string() + " is asked for already: remove " +
              (folder / kTraceRequest).string() + " if nobody waits for it any more");
    const CapturedStderr captured;
    end_traces(folder, {1'000'000, 1'000'001}, 0);  // an earlier trace is there
    CHECK(captured.text().empty());
    fs::remove(folder / kTraceFile);
    end_traces(folder, {1'000'000, 1'000'001}, 1);
    CHECK(captured.text().empty());
    end_traces(folder, {1'000'000, 1'000'001}, 0);
    CHECK(captured.text() ==
          "lockstep: warning: telemetry.trace is [1000000, 1000001], and the run has done none of "
          "these steps: there is no trace.json\n");
    CHECK(message_of<Error>([&] { (void)asked.get(); }) ==
          "the run in " + folder.string() + " has ended before its next step: there is no trace");
    CHECK(message_of<Error>([&] { (void)request_trace(folder, std::chrono::milliseconds(1)); }) ==
          "the run in " + folder.string() +
              " has not done 10 steps in 1 s: --timeout may be longer");
    CHECK(!fs::exists(folder / kTraceRequest));
  }
  CHECK(message_of<ValueError>([&] { (void)request_trace(folder, seconds(1)); }) ==
        "the run in " + folder.string() +
            " is not going on: telemetry.trace, as [100, 110], lets a run write a trace of its "
            "steps");
}

}  // namespace lockstep
