#include <chrono>
#include <iostream>
#include <string>

#include <ATen/ops/ones.h>

#include "framework/base/errors.h"
#include "framework/base/text.h"
#include "framework/collectives/axis_index.h"
#include "framework/collectives/psum.h"
#include "framework/launch/launch.h"
#include "framework/maps/shard_map.h"
#include "tests/catch.h"
#include "tests/launch/launched.h"
#include "tests/maps/out_of_step.h"
#include "tests/support/ended.h"
#include "tests/support/settings.h"

using namespace lockstep;
using namespace lockstep::testing;

namespace {

using std::chrono::milliseconds;

// Returns true if the launcher's error is a CollectiveMismatch.
bool is_mismatch(const OutOfStep& way) {
  return way.others_end == "CollectiveMismatch";
}

// Runs the way's body in this replica, over a mesh of the job if it needs one. `right` tells which
// replicas have ended as they must. The first replica that fails leaves at once and takes its
// connections with it: the others still learn why.
void fall_out_of_step(const OutOfStep& way, std::int64_t odd, const SharedNumbers& right) {
  const auto body = [&] {
    const std::int64_t own = own_number(way);
    const Ending ending = ending_of(way, odd);
    const std::string fault = fault_of(ending, way, odd, own);
    if (!fault.empty()) std::cerr << fault << std::endl;
    right[static_cast<std::size_t>(own)] = fault.empty() ? 1 : 0;
    if (!ending.error) return;
    std::rethrow_exception(ending.error);
  };
  if (!way.on_mesh) return body();
  shard_map(body, Mesh({{"row", 2}, {"column", 2}}), {}, P())();
}

void check_job(const OutOfStep& way, std::int64_t odd, LaunchMode mode, Backend backend,
               std::int64_t workers = 0) {
  INFO(name_of(mode) << " on " << workers << " workers"
                     << (backend == Backend::gloo ? " over gloo" : "") << ": replica " << odd << " "
                     << way.name);
  const SharedNumbers right(kReplicas);
  const Ended ended =
      launched([&] { fall_out_of_step(way, odd, right); },
               {.replicas = kReplicas, .workers = workers, .mode = mode, .backend = backend});
  INFO(ended.err);
  CHECK(ended.seconds < static_cast<double>(kJobEnds.count()));
  const std::string words = last_words(ended);
  CHECK(missing_in(words, way, odd) == "");
  if (is_mismatch(way)) {
    CHECK(right.set() == kReplicas);
    CHECK(ended.status == 3);
    CHECK_THAT(words, ContainsSubstring(way.others_end));
  } else {
    CHECK(ended.status == 2);
    CHECK_THAT(words, ContainsSubstring(str("replica ", odd)));
    CHECK_THAT(words, ContainsSubstring(way.odd_ends));
  }
}

// Checks all ways, with both backends in turn.
void check_all_ways(bool on_fewer_workers) {
  Sample sample(on_fewer_workers ? "ways out of step on fewer workers" : "ways out of step");
  std::int64_t odd = 0;
  for (int round = 0; round < rounds(); ++round) {
    for (const OutOfStep& way : ways_out_of_step()) {
      const bool gloo = ++odd % 2 == 0;
      if (!sample.next()) continue;
      const std::int64_t workers = on_fewer_workers ? 1 + odd % 3 : 0;
      check_job(way, odd % kReplicas, LaunchMode::processes,
                gloo ? Backend::gloo : Backend::automatic, workers);
      check_job(way, odd % kReplicas, LaunchMode::threads,
                gloo ? Backend::automatic : Backend::gloo, workers);
    }
  }
}

}  // namespace

TEST_CASE("out of step: every way ends every replica of a job, soon and with both sides") {
  check_all_ways(/*on_fewer_workers=*/false);
}

TEST_CASE("out of step: every way ends every replica of a job on fewer workers") {
  check_all_ways(/*on_fewer_workers=*/true);
}

TEST_CASE("out of step: every way ends every replica of a job on two hosts with the same words") {
  // Each commit checks other ways.
  std::int64_t odd = static_cast<std::int64_t>(seed() % kReplicas);
  for (const OutOfStep& way : ways_out_of_step()) {
    if (++odd % kReplicas != 0) continue;
    const SharedNumbers right(kReplicas);
    const std::int64_t own_odd = (odd / kReplicas) % kReplicas;
    INFO("replica " << own_odd << " " << way.name);
    const std::vector<Ended> ended = launched_on_hosts(
        [&] { fall_out_of_step(way, own_odd, right); }, {.replicas = kReplicas}, 2);
    for (const Ended& host : ended) {
      INFO(host.err);
      CHECK(host.seconds < static_cast<double>(kJobEnds.count()));
      CHECK(host.status == (is_mismatch(way) ? 3 : 2));
      CHECK(missing_in(last_words(host), way, own_odd) == "");
      CHECK(host.err.find(" ended after ") == std::string::npos);  // a replica's fault
      CHECK(last_words(host) == last_words(ended[0]));
    }
    // A launcher that hears of the end from the other host may be faster than its replicas.
    if (is_mismatch(way)) CHECK(right.set() >= 1);
  }
}

TEST_CASE("a replica for which others wait long is told of, and the job goes on") {
  constexpr std::size_t kSlow = 2;
  const auto replica = [] {
    (void)psum(at::ones({5, 2}), "data");
    // The slow replica comes long after the warning's time.
    if (own_index() == kSlow) {
      const std::int64_t until = now_ms() + 1000;
      (void)eventually([&] { return now_ms() > until; });
    }
    (void)pmean(at::ones({3}), "data");
  };
  const std::string missing =
      " has not arrived: it is running, and the last collective it finished is psum over 'data' at "
      "out_of_step_process_test.cpp:";
  const auto check = [&](const Ended& ended, const std::string& slow) {
    check_status(ended, 0);
    const std::string warning = "lockstep: warning: stalled for ";
    const std::size_t first = ended.err.find(warning);
    REQUIRE(first != std::string::npos);
    CHECK(ended.err.find(warning, first + 1) != std::string::npos);  // when the time has doubled
    CHECK_THAT(ended.err, ContainsSubstring(" waits in pmean over 'data' at "));
    CHECK_THAT(ended.err, ContainsSubstring(slow + missing));
  };
  const LaunchOptions options{.replicas = kReplicas, .stall_warning = milliseconds(200)};
  for (const LaunchMode mode : kModes) {
    LaunchOptions own = options;
    own.mode = mode;
    check(launched(replica, own), "replica 2");
  }
  for (const Ended& ended : launched_on_hosts(replica, options, 2)) {
    check(ended, "replica 2 on host 1");
  }
}

TEST_CASE(
    "out of step: a job's replica that never arrives is a Timeout that says how far it came") {
  for (const LaunchMode mode : kModes) {
    INFO(name_of(mode));
    const std::int64_t absent = 1;
    const SharedNumbers timed_out(kReplicas);
    const Ended ended = launched(
        [&] {
          (void)psum(at::ones({5, 2}), "data");
          if (axis_index("data") == absent) {
            (void)eventually([&] { return timed_out.set() == kReplicas - 1; }, kJobEnds);
            return;
          }
          try {
            (void)pmean(at::ones({3}), "data");
          } catch (const Timeout&) {
            timed_out[own_index()] = 1;
            (void)eventually([&] { return timed_out.set() == kReplicas - 1; }, kJobEnds);
            throw;
          }
        },
        {.replicas = kReplicas, .mode = mode, .timeout = milliseconds(300)});
    INFO(ended.err);
    CHECK(timed_out.set() == kReplicas - 1);
    CHECK(ended.status == 3);
    CHECK_THAT(last_words(ended), ContainsSubstring("Timeout"));
    CHECK_THAT(last_words(ended),
               ContainsSubstring("replica 1 has not arrived: it is running, and the last "
                                 "collective it finished is psum over 'data' at "
                                 "out_of_step_process_test.cpp:"));
    CHECK_THAT(last_words(ended), ContainsSubstring("with (5, 2) float32, its 1st"));
  }
}
