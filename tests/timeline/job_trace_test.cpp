#include "framework/timeline/job_trace.h"

#include <array>
#include <cstddef>
#include <cstdint>
#include <deque>
#include <limits>
#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <variant>
#include <vector>

#include <unistd.h>

#include "framework/base/errors.h"
#include "framework/base/range.h"
#include "tests/catch.h"
#include "tests/support/message_of.h"

using namespace lockstep;
using testing::message_of;
using timeline::ClockAsked;
using timeline::JobTrace;
using timeline::RecordedSpan;
using timeline::Recorder;
using timeline::SpanKind;
using timeline::Trace;
using timeline::TracedSteps;
using timeline::TraceMessage;
using timeline::TraceWanted;
using timeline::TraceWords;

namespace {

// Hosts with a replica and a recorder each. Their launchers exchange the messages of a JobTrace.
class Hosts {
 public:
  explicit Hosts(std::size_t count) {
    std::vector<Range> replicas;
    for (std::size_t host = 0; host < count; ++host)
      replicas.push_back({static_cast<std::int64_t>(host), 1});
    for (std::size_t host = 0; host < count; ++host) {
      recorders_.push_back(std::make_unique<Recorder>(static_cast<int>(count)));
      tracks_.push_back(recorders_[host]->take(static_cast<int>(host), "replica"));
      traces_.push_back(std::make_unique<JobTrace>(
          host, replicas, *recorders_[host],
          JobTrace::Uses{.send =
                             [this, host](std::size_t to, const TraceMessage& message) {
                               sent_.emplace_back(std::pair(host, to), message);
                             },
                         .wanted = [this] { return std::exchange(wanted, std::nullopt); },
                         .take = [this](const Trace& trace) { taken.push_back(trace); }}));
      traces_[host]->set_workers({{static_cast<int>(host), ::getpid()}});
    }
  }

  // Lets each replica do a step, with a call.
  void step(std::uint64_t number) {
    for (const auto& track : tracks_) {
      const RecordedSpan step(track.get(), {.kind = SpanKind::step, .id = number});
      const RecordedSpan call(track.get(),
                              {.kind = SpanKind::collective, .bytes = 8, .id = 1000 + number});
    }
  }
  void evaluate(std::uint64_t step) {
    for (const auto& track : tracks_) {
      const RecordedSpan span(track.get(), {.kind = SpanKind::evaluation, .id = step});
    }
  }
  JobTrace& trace(std::size_t host) { return *traces_[host]; }
  void deliver() {
    while (!sent_.empty()) {
      const auto [way, message] = sent_.front();
      sent_.pop_front();
      traces_[way.second]->hear(way.first, message);
    }
  }

  std::optional<TracedSteps> wanted;
  std::vector<Trace> taken;

 private:
  std::vector<std::unique_ptr<Recorder>> recorders_;
  std::vector<std::unique_ptr<Recorder::Track>> tracks_;
  std::vector<std::unique_ptr<JobTrace>> traces_;
  std::deque<std::pair<std::pair<std::size_t, std::size_t>, TraceMessage>> sent_;
};

std::vector<std::uint64_t> steps_of(const Trace::Host& host) {
  std::vector<std::uint64_t> steps;
  for (const Recorder::Span& span : host.replicas.at(0).tracks.at(0).spans) {
    if (span.kind == SpanKind::step) steps.push_back(span.id);
  }
  return steps;
}

}  // namespace

TEST_CASE("a trace has the wanted steps of all hosts' replicas", "[trace]") {
  Hosts hosts(3);
  for (std::uint64_t step = 1; step <= 6; ++step) hosts.step(step);
  hosts.wanted = {3, 2};
  hosts.trace(0).progress();
  CHECK(hosts.taken.empty());  // the others have still to answer
  hosts.deliver();
  REQUIRE(hosts.taken.size() == 1);
  const Trace& trace = hosts.taken[0];
  CHECK(trace.first == 3);
  CHECK(trace.last == 4);
  REQUIRE(trace.hosts.size() == 3);
  for (std::size_t host = 0; host < 3; ++host) {
    const Trace::Host& its = trace.hosts[host];
    REQUIRE(its.replicas.size() == 1);
    CHECK(its.replicas[0].replica == static_cast<int>(host));
    CHECK(its.replicas[0].tracks.at(0).track == "replica");
    CHECK(its.replicas[0].tracks[0].spans.size() == 4);
    CHECK(steps_of(its) == std::vector<std::uint64_t>{3, 4});
    CHECK(!its.name.empty());
    CHECK(!its.is_cut);
    REQUIRE(its.memory.size() == 1);
    CHECK(its.memory[0].worker == static_cast<int>(host));
    CHECK(its.memory[0].bytes > 1'000'000);
    // All hosts of a test share one clock.
    CHECK(static_cast<std::uint64_t>(std::abs(its.offset)) <= its.error);
    CHECK((its.error > 0) == (host > 0));
  }
  hosts.trace(0).progress();
  hosts.trace(0).close();
  CHECK(hosts.taken.size() == 1);
}

TEST_CASE("a trace begins with the evaluation that comes before its first step", "[trace]") {
  Hosts hosts(1);
  for (std::uint64_t step = 1; step <= 4; ++step) {
    hosts.step(step);
    hosts.evaluate(step);
  }
  hosts.wanted = {3, 2};
  hosts.trace(0).progress();
  REQUIRE(hosts.taken.size() == 1);
  std::vector<std::uint64_t> evaluated;
  for (const Recorder::Span& span : hosts.taken[0].hosts.at(0).replicas.at(0).tracks.at(0).spans) {
    if (span.kind == SpanKind::evaluation) evaluated.push_back(span.id);
  }
  evaluated.resize(2);  // the last step's may be there, too
  CHECK(evaluated == std::vector<std::uint64_t>{2, 3});
  const auto& times = hosts.taken[0].step_times().steps;
  CHECK(times.at(3).at(0).of(timeline::TimePart::evaluation) > 0);
  CHECK(times.at(4).at(0).of(timeline::TimePart::evaluation) > 0);
}

TEST_CASE("a trace of the next steps ends with its last one, or with the run", "[trace]") {
  Hosts hosts(2);
  hosts.step(41);
  hosts.wanted = {0, 10};
  hosts.trace(0).progress();
  hosts.deliver();
  hosts.step(42);
  hosts.step(43);
  CHECK(!hosts.trace(0).is_pending());
  for (const std::size_t host : {0U, 1U}) hosts.trace(host).end();
  CHECK(hosts.trace(0).is_pending());
  CHECK(!hosts.trace(1).is_pending());
  hosts.deliver();
  CHECK(!hosts.trace(0).is_pending());
  REQUIRE(hosts.taken.size() == 1);
  CHECK(hosts.taken[0].first == 42);
  CHECK(hosts.taken[0].last == 51);
  for (const Trace::Host& host : hosts.taken[0].hosts)
    CHECK(steps_of(host) == std::vector<std::uint64_t>{42, 43});
}

TEST_CASE("there is no trace of steps that a run does not come to", "[trace]") {
  Hosts hosts(1);
  hosts.step(1);
  hosts.wanted = {5, 2};
  hosts.trace(0).progress();
  hosts.step(2);
  hosts.trace(0).end();
  hosts.trace(0).close();
  CHECK(hosts.taken.empty());
}

TEST_CASE("what a lost host has not sent is missing in the trace", "[trace]") {
  Hosts hosts(2);
  hosts.step(1);
  hosts.wanted = {1, 1};
  hosts.trace(0).progress();
  hosts.trace(0).close();
  REQUIRE(hosts.taken.size() == 1);
  CHECK(steps_of(hosts.taken[0].hosts.at(0)) == std::vector<std::uint64_t>{1});
  CHECK(hosts.taken[0].hosts.at(1).replicas.empty());
  hosts.deliver();  // too late
  CHECK(hosts.taken.size() == 1);
}

TEST_CASE("a clock's offset is right within half of the way there and back", "[trace]") {
  const auto check = [](std::uint64_t sent, std::uint64_t heard, std::uint64_t back,
                        std::int64_t offset, std::uint64_t error) {
    const timeline::ClockOffset found = timeline::clock_offset(sent, heard, back);
    CHECK(found.offset == offset);
    CHECK(found.error == error);
  };
  check(1000, 5000, 1100, -3950, 50);
  check(5000, 1000, 5001, 4000, 1);
  check(7, 7, 7, 0, 0);
}

TEST_CASE("what hosts say of traces is checked", "[trace]") {
  const auto refusal = [](std::size_t at, std::size_t from, const TraceMessage& message) {
    Hosts hosts(2);
    hosts.step(1);
    hosts.wanted = {1, 1};
    hosts.trace(0).progress();
    return message_of<DataError>([&] { hosts.trace(at).hear(from, message); });
  };
  const std::string asks = "host 0 alone asks for traces";
  CHECK(refusal(0, 1, TraceWanted{1, 1, 1}) == asks);
  CHECK(refusal(1, 1, TraceWanted{1, 1, 1}) == asks);
  CHECK(refusal(1, 0, TraceWords{1, "", true}) == asks);
  CHECK(refusal(0, 2, TraceWords{1, "", true}) == asks);
  CHECK(refusal(1, 0, TraceWanted{1, 2, 1}) == "no steps are wanted");
  CHECK(refusal(0, 1, ClockAsked{std::numeric_limits<std::uint64_t>::max(), 1}) ==
        "this host was not asked then");

  const auto part = [](int replica, std::uint64_t begin, std::uint64_t end) {
    Recorder::Recording track{
        .track = "replica", .begun = 1, .spans = {{.begin = begin, .end = end}}};
    return Trace::Host{.name = "b", .replicas = {{replica, {track}}}};
  };
  const auto sent = [&](const std::string& bytes) {
    return refusal(0, 1, TraceWords{1, bytes, true});
  };
  const std::string damaged = "a part of a trace can't be what a host's replicas have recorded";
  CHECK(sent(encode(part(1, 5, 6))) == "no error");
  CHECK(sent(encode(part(0, 5, 6))) == damaged);
  CHECK(sent(encode(part(1, 6, 5))) == damaged);
  CHECK(sent(encode(part(1, 5, std::uint64_t{1} << 63))) == damaged);
  Trace::Host many = part(1, 5, 6);
  many.replicas[0].tracks.resize(Recorder::kTracks + 1);
  CHECK(sent(encode(many)) == damaged);
  many.replicas = {{1, {}}, {1, {}}};
  CHECK(sent(encode(many)) == damaged);
  // A part that is damaged anywhere is read as something else, or refused.
  const std::string whole = encode(part(1, 5, 6));
  for (std::size_t at = 0; at < whole.size(); ++at) {
    std::string bytes = whole;
    bytes[at] = static_cast<char>(bytes[at] ^ 0x81);
    CHECK(sent(bytes) != "an error of another type");
    CHECK(sent(whole.substr(0, at)).starts_with("a part of a trace"));
  }
}
