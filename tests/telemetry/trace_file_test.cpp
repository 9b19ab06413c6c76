#include "framework/telemetry/trace_file.h"

#include <cstddef>
#include <cstdint>
#include <map>
#include <string>
#include <utility>
#include <vector>

#include <nlohmann/json.hpp>

#include "framework/base/errors.h"
#include "framework/base/range.h"
#include "framework/base/text.h"
#include "tests/catch.h"
#include "tests/support/files.h"
#include "tests/support/message_of.h"

namespace lockstep {

using namespace testing;
using timeline::Recorder;
using timeline::SpanKind;
using timeline::Trace;

namespace {

using Json = nlohmann::json;

// A name as a hostile program may give it: it must not end its text, nor the file's.
const std::string kHostile = "</script>\"]}\\ \xff\x01 psum over 'data'";

Recorder::Span span(SpanKind kind, std::uint64_t begin, std::uint64_t end, std::uint64_t bytes = 0,
                    std::uint64_t id = 0, std::string name = "") {
  return {.number = 0,
          .kind = kind,
          .name = std::move(name),
          .begin = begin,
          .end = end,
          .bytes = bytes,
          .id = id};
}

// Two replicas on two hosts in step 7: replica 1 comes to the call 2 ms after replica 0.
Trace made_trace() {
  constexpr std::uint64_t kId = 0xfedcba9876543210;
  const std::string call = "psum over 'data' at a.cpp:3";
  const Recorder::Recording first{
      .track = "replica",
      .begun = 4,
      .spans = {span(SpanKind::step, 1'000'000'001, 1'010'000'000, 0, 7),
                span(SpanKind::forward, 1'000'000'001, 1'002'000'000),
                span(SpanKind::collective, 1'002'000'000, 1'004'500'000, 64, kId, call),
                span(SpanKind::update, 1'004'500'000, 0)}};
  const Recorder::Recording second{
      .track = "replica",
      .begun = 1,
      .spans = {span(SpanKind::collective, 1'004'000'000, 1'004'400'000, 64, kId, call)}};
  // The same call once more, beside it.
  const Recorder::Recording beside{
      .track = "reductions",
      .begun = 1,
      .spans = {span(SpanKind::reduction, 1'004'000'001, 1'004'000'002, 8, kId, kHostile)}};
  return {.first = 7,
          .last = 7,
          .versions = {{"lockstep", "0.1"}},
          .hosts = {{.name = "a", .replicas = {{0, {first}}}, .memory = {{0, 1'001'000'000, 4096}}},
                    {.name = kHostile,
                     .offset = -5,
                     .error = 1200,
                     .is_cut = true,
                     .replicas = {{1, {second, beside}}}}}};
}

std::vector<Json> events(const Json& file, const std::string& phase) {
  return filtered(file.at("traceEvents").get<std::vector<Json>>(),
                  [&](const Json& event) { return event.at("ph") == phase; });
}

}  // namespace

TEST_CASE("what comes from several hosts at a time has tracks of its own", "[trace]") {
  const Recorder::Recording network{.track = "network",
                                    .begun = 3,
                                    .spans = {span(SpanKind::transfer, 10'000, 20'000, 64, 1),
                                              span(SpanKind::transfer, 15'000, 30'000, 64, 2),
                                              span(SpanKind::transfer, 40'000, 50'000, 64, 1)}};
  const Trace trace{.first = 7, .last = 7, .hosts = {{.name = "a", .replicas = {{3, {network}}}}}};
  const TemporaryFolder folder;
  write_text(folder.path() / "trace.json", trace_json(trace));
  const Trace found = read_trace(folder.path() / "trace.json");
  const auto& tracks = found.hosts.at(0).replicas.at(0).tracks;
  REQUIRE(tracks.size() == 2);
  CHECK((tracks[0].track == "from host 1" && tracks[1].track == "from host 2"));
  REQUIRE((tracks[0].spans.size() == 2 && tracks[1].spans.size() == 1));
  CHECK((tracks[1].spans[0].kind == SpanKind::transfer && tracks[1].spans[0].id == 2));
  CHECK(tracks[1].spans[0].end - tracks[1].spans[0].begin == 15'000);
}

TEST_CASE("a timeline names the slow replica, and what comes over a slow link", "[trace]") {
  // A step of 100 ms, in which replica 1 comes last; over the link from host 1 to 0 comes a tenth.
  constexpr std::uint64_t kMs = 1'000'000;
  const auto host = [](int replica, std::uint64_t computes, std::uint64_t takes) {
    Recorder::Recording own{.track = "replica", .begun = 2, .spans = {}};
    own.spans = {span(SpanKind::step, kMs, 101 * kMs, 0, 7),
                 span(SpanKind::collective, (1 + computes) * kMs, 101 * kMs, 64, 99)};
    Recorder::Recording network{.track = "network", .begun = 10, .spans = {}};
    network.spans.assign(10, span(SpanKind::transfer, 1, 1 + takes * kMs, 1'000'000,
                                  static_cast<std::uint64_t>(1 - replica)));
    return Trace::Host{.name = "a", .replicas = {{replica, {own, network}}}};
  };
  const auto names = [](const Trace& trace) {
    std::vector<std::string> all;
    for (const Json& event : events(Json::parse(trace_json(trace)), "M")) {
      if (event.at("name") == "thread_name") all.push_back(event.at("args").at("name"));
    }
    return join(all, "; ");
  };
  CHECK(names({.first = 7, .last = 7, .hosts = {host(0, 30, 50), host(1, 60, 5)}}) ==
        "replica 0; replica 0: from host 1 (slow); replica 1 (slow); replica 1: from host 0");
  CHECK(names({.first = 7, .last = 7, .hosts = {host(0, 30, 5), host(1, 30, 5)}}) ==
        "replica 0; replica 0: from host 1; replica 1; replica 1: from host 0");
}

TEST_CASE("a trace's file is in Chrome's trace format", "[trace]") {
  const Json file = Json::parse(trace_json(made_trace()));
  for (const Json& event : file.at("traceEvents")) {
    // What the format asks of every event.
    CHECK(event.at("name").is_string());
    CHECK(event.at("pid").is_number_integer());
    CHECK(event.at("tid").is_number_integer());
    if (event.at("ph") != "M") CHECK(event.at("ts").get<double>() >= 0);
    if (event.at("ph") == "X") CHECK(event.at("dur").get<double>() >= 0);
  }
  std::map<std::pair<int, int>, std::string> threads;
  std::vector<std::string> processes;
  for (const Json& event : events(file, "M")) {
    if (event.at("name") == "thread_name")
      threads[{event.at("pid"), event.at("tid")}] = event.at("args").at("name");
    if (event.at("name") == "process_name") processes.push_back(event.at("args").at("name"));
  }
  CHECK(processes[0] == "host 0 a");
  CHECK(processes[1].starts_with("host 1 </script>\"]}\\ "));
  const auto spans = events(file, "X");
  REQUIRE(spans.size() == 5);
  CHECK(spans[0].at("name") == "step 7");
  CHECK(spans[0].at("ts") == 0);
  CHECK(spans[0].at("dur") == 9999.999);
  CHECK(spans[1].at("name") == "forward");
  CHECK(spans[2].at("name") == "psum over 'data' at a.cpp:3");
  CHECK(spans[2].at("ts") == 1999.999);
  CHECK(spans[2].at("cat") == "collective");
  CHECK(spans[2].at("args").at("bytes") == 64);
  CHECK(spans[2].at("args").at("id") == "0xfedcba9876543210");
  const auto name_of_thread = [&](const Json& event) {
    return threads.at({event.at("pid"), event.at("tid")});
  };
  CHECK(mapped(spans, name_of_thread) == std::vector<std::string>{"replica 0", "replica 0",
                                                                  "replica 0", "replica 1",
                                                                  "replica 1: reductions"});
  CHECK(events(file, "B").at(0).at("name") == "update");

  const Json from = events(file, "s").at(0);
  const Json to = events(file, "f").at(0);
  CHECK(events(file, "s").size() == 1);
  CHECK(from.at("id") == to.at("id"));
  CHECK(from.at("ts") == spans[2].at("ts"));
  CHECK(to.at("ts") == spans[3].at("ts"));
  CHECK(name_of_thread(from) == "replica 0");
  CHECK(name_of_thread(to) == "replica 1");
  CHECK(to.at("bp") == "e");

  std::map<std::string, std::vector<std::pair<double, std::uint64_t>>> counters;
  for (const Json& event : events(file, "C"))
    counters[event.at("name")].emplace_back(event.at("ts"), event.at("args").at("bytes"));
  CHECK(counters["memory of worker 0"] ==
        std::vector<std::pair<double, std::uint64_t>>{{999.999, 4096}});
  // The reduction inside of the call moves the call's bytes.
  CHECK(counters["bytes moved by replica 1"] ==
        std::vector<std::pair<double, std::uint64_t>>{{3999.999, 64}, {4399.999, 0}});

  const Json& other = file.at("otherData");
  CHECK(other.at("first_step") == 7);
  CHECK(other.at("versions").at("lockstep") == "0.1");
  CHECK(other.at("hosts").at(1).at("clock_offset_ns") == -5);
  CHECK(other.at("hosts").at(1).at("clock_error_ns") == 1200);
}

TEST_CASE("a trace is read back", "[trace]") {
  const TemporaryFolder home;
  const Trace written = made_trace();
  write_text(home.path() / "trace.json", trace_json(written));
  const Trace read = read_trace(home.path() / "trace.json");
  CHECK(read.first == 7);
  CHECK(read.last == 7);
  CHECK(read.versions == written.versions);
  REQUIRE(read.hosts.size() == 2);
  CHECK(read.hosts[1].offset == -5);
  CHECK(read.hosts[1].error == 1200);
  CHECK(read.hosts[1].is_cut);
  for (std::size_t host = 0; host < 2; ++host) {
    REQUIRE(read.hosts[host].replicas.size() == 1);
    const timeline::ReplicaRecording& recording = read.hosts[host].replicas[0];
    const timeline::ReplicaRecording& its = written.hosts[host].replicas[0];
    CHECK(recording.replica == its.replica);
    REQUIRE(recording.tracks.size() == its.tracks.size());
    for (std::size_t i = 0; i < its.tracks.size(); ++i) {
      const Recorder::Recording& track = recording.tracks[i];
      const Recorder::Recording& before = its.tracks[i];
      CHECK(track.track == before.track);
      REQUIRE(track.spans.size() == before.spans.size());
      for (std::size_t s = 0; s < track.spans.size(); ++s) {
        const Recorder::Span& is = track.spans[s];
        const Recorder::Span& was = before.spans[s];
        CHECK(is.kind == was.kind);
        CHECK(is.begin == was.begin - 1'000'000'001);
        CHECK(is.end == (was.end == 0 ? 0 : was.end - 1'000'000'001));
        CHECK(is.bytes == was.bytes);
        CHECK(is.id == was.id);
        if (was.name != kHostile) CHECK(is.name == was.name);
      }
    }
  }
  CHECK(read.hosts[1].replicas[0].tracks[1].spans[0].name.ends_with(" psum over 'data'"));
  CHECK(read_trace([&] {
          write_text(home.path() / "empty.json", trace_json({}));
          return home.path() / "empty.json";
        }())
            .hosts.empty());
}

TEST_CASE("what is no trace of ours is refused", "[trace]") {
  const TemporaryFolder home;
  const auto path = home.path() / "trace.json";
  const std::string whole = trace_json(made_trace());
  const auto refusal = [&](const std::string& text) {
    write_text(path, text);
    return message_of<DataError>([&] { (void)read_trace(path); });
  };
  const auto with = [&](const std::string& old_text, const std::string& new_text) {
    std::string text = whole;
    const auto at = text.find(old_text);
    REQUIRE(at != std::string::npos);
    return text.replace(at, old_text.size(), new_text);
  };
  const std::string begin = path.string() + " is no trace that train has written: ";
  for (const std::string& text :
       {std::string(), std::string("[]"), std::string("{\"traceEvents\":[]}"),
        whole.substr(0, whole.size() / 2), std::string(100'000, '['),
        with("\"lockstep_trace\":1", "\"lockstep_trace\":2"), with("\"tid\":10", "\"tid\":-1"),
        with("\"ph\":\"X\",\"pid\":1", "\"ph\":\"X\",\"pid\":9"),
        with("\"dur\":9999.999", "\"dur\":1e300"), with("\"dur\":9999.999", "\"dur\":\"1\""),
        with("\"replica\":1,", "\"replica\":99999999999,"), with("0xfedc", "0xfedg"),
        with("\"bytes\":64", "\"bytes\":18446744073709551615"),
        with("\"clock_offset_ns\":-5", "\"clock_offset_ns\":1.5")}) {
    INFO(text.substr(0, 100));
    CHECK(refusal(text).starts_with(begin));
  }
  CHECK(refusal(with("\"cat\":\"forward\"", "\"cat\":\"sideward\"")) ==
        begin + "no span is of the kind 'sideward'");
  // Each byte of it may be damaged: it is read as something, or refused.
  for (std::size_t at = 0; at < whole.size(); at += 7) {
    std::string text = whole;
    text[at] = static_cast<char>(text[at] ^ 1);
    const std::string said = refusal(text);
    CHECK((said == "no error" || said.starts_with(begin)));
  }
  CHECK(message_of<DataError>([&] {
          (void)read_trace(home.path() / "none");
        }).starts_with("data file '"));
}

}  // namespace lockstep
