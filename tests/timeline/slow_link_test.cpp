#include "framework/timeline/slow_link.h"

#include <algorithm>
#include <cstdint>
#include <vector>

#include "framework/base/text.h"
#include "tests/catch.h"

using namespace lockstep;
using timeline::LinkRates;
using timeline::StepPace;

namespace {

// Returns the rates of hosts on one switch that all send to each other, with a tenth of the rate
// over the links in `slow`.
LinkRates rates(int hosts, const std::vector<timeline::HostLink>& slow) {
  LinkRates all;
  for (int from = 0; from < hosts; ++from) {
    for (int to = 0; to < hosts; ++to) {
      const bool is_slow = std::ranges::count(slow, timeline::HostLink(from, to)) > 0;
      for (int i = 0; from != to && i < 30; ++i) {
        // A busy machine receives bytes late, and then all at once; or it is paused.
        const double noise = i % 10 == 0 ? 20 : i % 10 == 1 ? 0.05 : 1 + 0.02 * i;
        all[{from, to}].push_back((is_slow ? 12e6 : 120e6) * noise);
      }
    }
  }
  return all;
}

const std::vector<StepPace> kExposed(9, {.total = 0.2, .exposed = 0.1});
const std::vector<StepPace> kHidden(9, {.total = 0.2, .exposed = 0.1, .hidden = 0.1});
const std::vector<StepPace> kLittle(9, {.total = 0.2, .exposed = 0.015, .hidden = 0.1});

}  // namespace

TEST_CASE("a link at a tenth of the others' rate is named, with what it costs") {
  const auto slow = timeline::slow_link(rates(3, {{2, 0}}), kExposed);
  REQUIRE(slow);
  CHECK(slow->name() == "the link from host 2 to host 0");
  CHECK(slow->rate / slow->best_rate == Approx(0.1));
  CHECK(slow->seconds_a_step == Approx(0.09));  // the bytes still need a tenth of the time
  CHECK(slow->share == Approx(0.45));
  CHECK(timeline::slow_link(rates(3, {{2, 0}}), kHidden)->seconds_a_step == Approx(0.1));
  CHECK(timeline::slow_link(rates(2, {{0, 1}}), kExposed)->name() ==
        "the link from host 0 to host 1");
}

TEST_CASE("a host whose cable is slow is named where several of its links are") {
  for (const std::vector<timeline::HostLink>& slow :
       {std::vector<timeline::HostLink>{{2, 0}, {2, 1}},
        {{0, 2}, {1, 2}},
        {{0, 2}, {1, 2}, {2, 0}, {2, 1}}}) {
    CHECK(timeline::slow_link(rates(3, slow), kExposed)->name() == "host 2's link");
  }
  CHECK(timeline::slow_link(rates(4, {{2, 0}, {1, 3}}), kExposed)->name() ==
        "the link from host 1 to host 3");
}

TEST_CASE("no link is named where all are alike, where it costs little, or is one alone") {
  CHECK(!timeline::slow_link(rates(3, {}), kExposed));
  CHECK(!timeline::slow_link(rates(2, {{0, 1}, {1, 0}}), kExposed));
  CHECK(!timeline::slow_link(rates(3, {{2, 0}}), kLittle));
  CHECK(!timeline::slow_link(rates(3, {{2, 0}}), {}));
  CHECK(!timeline::slow_link({{{1, 0}, std::vector<double>(20, 1e6)}}, kExposed));
  LinkRates few = rates(3, {});
  few[{2, 0}] = {1e6};
  CHECK(!timeline::slow_link(few, kExposed));
}

TEST_CASE("rates follow from what hosts have recorded of transfers") {
  constexpr std::uint64_t kMs = 1'000'000;
  timeline::Recorder::Recording track{.track = "network", .begun = 3, .spans = {}};
  using Span = timeline::Recorder::Span;
  track.spans = {
      Span{.number = 1,
           .kind = timeline::SpanKind::transfer,
           .begin = 5 * kMs,
           .end = 15 * kMs,
           .bytes = 1'000'000,
           .id = 2},
      Span{
          .number = 2, .kind = timeline::SpanKind::transfer, .begin = 5 * kMs, .bytes = 9, .id = 2},
      Span{.number = 3,
           .kind = timeline::SpanKind::reduction,
           .begin = 5 * kMs,
           .end = 15 * kMs,
           .bytes = 9,
           .id = 2}};
  LinkRates rates;
  timeline::add_rates({{4, {track}}}, 1, rates);
  CHECK(rates == LinkRates{{{2, 1}, {1e8}}});
}

TEST_CASE("a replica tells the rates of what came to its host link by link, each once") {
  timeline::Recorder recorder(2);
  const auto own = recorder.take(1, "replica");
  timeline::IncomingRates incoming;
  CHECK(incoming.next(nullptr, 1).rate == 0);
  CHECK(incoming.next(own.get(), 1).rate == 0);  // nobody has recorded a transfer
  const auto network = recorder.take(1, "network");
  const auto others = recorder.take(0, "network");
  const auto come = [](timeline::Recorder::Track& track, std::uint64_t from, std::uint64_t bytes) {
    const std::uint64_t now = timeline::recorder_now();
    track.add({.kind = timeline::SpanKind::transfer, .bytes = bytes, .id = from}, now - 1'000'000,
              now);
  };
  const auto told = [&] {
    const timeline::ToldRate rate = incoming.next(own.get(), 1);
    return rate.rate == 0 ? "" : str(rate.from, " to ", rate.to, ": ", 1e-9 * rate.rate);
  };
  for (const std::uint64_t bytes : {1'000'000, 9'000'000, 2'000'000}) come(*network, 2, bytes);
  come(*others, 3, 5'000'000);  // another replica tells it
  come(*network, 0, 4'000'000);
  CHECK(told() == "0 to 1: 4");
  come(*network, 0, 3'000'000);
  CHECK(told() == "2 to 1: 2");
  CHECK(told() == "0 to 1: 3");
  CHECK(told().empty());
  come(*network, 0, 7'000'000);
  CHECK(told() == "0 to 1: 7");
}
