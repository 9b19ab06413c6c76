#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <iostream>
#include <iterator>
#include <map>
#include <set>
#include <span>
#include <string>
#include <thread>
#include <vector>

#include <ATen/TensorOperators.h>
#include <ATen/core/Tensor.h>
#include <ATen/ops/arange.h>
#include <ATen/ops/full.h>
#include <unistd.h>

#include "framework/axes/environment.h"
#include "framework/base/text.h"
#include "framework/collectives/all_gather.h"
#include "framework/collectives/axis_index.h"
#include "framework/collectives/psum.h"
#include "framework/launch/launch.h"
#include "framework/maps/pmap.h"
#include "framework/maps/vmap.h"
#include "tests/catch.h"
#include "tests/collectives/cases.h"
#include "tests/launch/launched.h"
#include "tests/support/ended.h"
#include "tests/support/settings.h"

// Jobs whose replicas share workers.

using namespace lockstep;
using namespace lockstep::testing;

namespace {

constexpr Backend kBackends[] = {Backend::automatic, Backend::gloo};

struct Sharing {
  std::int64_t replicas;
  std::int64_t workers;
};
constexpr Sharing kSharings[] = {{1, 1}, {2, 1}, {3, 2}, {4, 1}, {4, 2}, {4, 3}, {4, 4}, {5, 2}};

}  // namespace

TEST_CASE("workers: every replica runs once, with its index, in the process of its worker") {
  std::vector<Sharing> sharings(std::begin(kSharings), std::end(kSharings));
  for (const std::int64_t replicas : {2, 3, 5}) sharings.push_back({replicas, replicas});
  Sample sample("sharings");
  for (const Sharing& sharing : sharings) {
    for (const LaunchMode mode : kModes) {
      for (const Backend backend : kBackends) {
        if (!sample.next()) continue;
        const std::int64_t n = sharing.replicas;
        INFO(n << " on " << sharing.workers << " " << name_of(mode)
               << (backend == Backend::gloo ? " over gloo" : ""));
        const SharedNumbers runs(static_cast<std::size_t>(n));
        const SharedNumbers pids(static_cast<std::size_t>(n));
        const Ended ended = launched(
            [&] {
              const std::int64_t index = axis_index("batch");
              expect(axis_size("batch") == n, "axis size");
              const Tensor sum = psum(at::full({5}, index + 1, at::kLong), "batch");
              expect(sum.equal(at::full({5}, n * (n + 1) / 2, at::kLong)), "psum");
              expect(all_gather(at::full({}, index, at::kLong), "batch").equal(at::arange(n)),
                     "all_gather");
              ++runs[static_cast<std::size_t>(index)];
              pids[static_cast<std::size_t>(index)] = ::getpid();
            },
            {.replicas = n,
             .workers = sharing.workers,
             .mode = mode,
             .backend = backend,
             .axis_name = "batch"});
        check_status(ended, 0);
        std::map<std::int64_t, std::set<std::int64_t>> by_worker;
        std::set<std::int64_t> different;
        for (std::int64_t i = 0; i < n; ++i) {
          const auto place = static_cast<std::size_t>(i);
          CHECK(runs[place] == 1);
          by_worker[worker_of(i, sharing.replicas, sharing.workers)].insert(pids[place]);
          different.insert(pids[place]);
        }
        for (const auto& [worker, of_one] : by_worker) CHECK(of_one.size() == 1);
        CHECK(!different.contains(::getpid()));
        const auto processes =
            static_cast<std::size_t>(mode == LaunchMode::processes ? sharing.workers : 1);
        CHECK(different.size() == processes);
        std::string what = name_of(mode);
        if (sharing.workers == 1) what = mode == LaunchMode::threads ? "a thread" : "a process";
        const std::string how =
            sharing.workers == n
                ? " as " + what
                : str(" on ", sharing.workers, sharing.workers == 1 ? " worker (" : " workers (",
                      what, ")");
        CHECK_THAT(ended.err, ContainsSubstring(str("lockstep: ", n,
                                                    n == 1 ? " replica" : " replicas", how, ", ")));
      }
    }
  }
}

TEST_CASE("workers: no more replicas run at once than there are workers") {
  for (const LaunchMode mode : kModes) {
    const SharedNumbers running(2);
    const SharedNumbers most(2);
    check_launched(
        [&] {
          const std::size_t worker = own_index() < 3 ? 0 : 1;
          for (int round = 0; round < 20; ++round) {
            const std::int64_t now = ++running[worker];
            if (now > most[worker]) most[worker] = now;
            std::this_thread::yield();
            --running[worker];
            meet();
          }
        },
        {.replicas = 5, .workers = 2, .mode = mode});
    CHECK(most[0] == 1);
    CHECK(most[1] == 1);
  }
}

TEST_CASE("workers: maps in replicas that share a worker") {
  const auto body = [] {
    const std::int64_t member = axis_index("data");
    for (const std::int64_t count : {std::int64_t{1}, std::int64_t{2}, member + 1}) {
      const Tensor counts = all_gather(at::full({}, count, at::kLong), "data");
      const std::int64_t total = counts.sum().item<std::int64_t>();
      const auto f = pmap(
          [&](const Tensor& x) {
            expect(axis_size("i") == total, "axis size");
            return std::pair(psum(x + axis_index("i"), "i"), x);
          },
          {.axis_name = "i", .out_axes = {0, std::nullopt}});
      const auto [sum, of_first] = f(at::full({count, 4}, 10 + member, at::kLong));
      const Tensor members = all_gather(at::full({}, count * (10 + member), at::kLong), "data");
      const std::int64_t expected = members.sum().item<std::int64_t>() + total * (total - 1) / 2;
      expect(sum.equal(at::full({count, 4}, expected, at::kLong)), "psum over the job's maps");
      expect(of_first.equal(at::full({4}, 10, at::kLong)), "the axis' first replica");
    }
    const auto lanes = vmap(
        [&](const Tensor& x) {
          return std::pair(psum(x, "lane"), psum(x, {"lane", "data"}));
        },
        {.axis_name = "lane"});
    const auto [own, all] = lanes(at::full({3}, member + 1, at::kLong));
    expect(own.equal(at::full({3}, 3 * (member + 1), at::kLong)), "psum over lanes");
    const std::int64_t n = axis_size("data");
    expect(all.equal(at::full({3}, 3 * n * (n + 1) / 2, at::kLong)), "psum over lanes of all");
  };
  Sample sample("maps of sharings");
  for (const Sharing& sharing : kSharings) {
    for (const LaunchMode mode : kModes) {
      if (!sample.next()) continue;
      check_launched(body,
                     {.replicas = sharing.replicas, .workers = sharing.workers, .mode = mode});
    }
  }
}

TEST_CASE("workers: verbs of a subgroup") {
  const auto body = [] {
    groups::ReplicaGroup& job = replicas_of({"a test", "data", {}}, {}, GroupSizes::any);
    // One subgroup has the even places, one the odd, backwards.
    std::vector<int> members;
    for (int place = 0; place < job.size(); ++place) {
      if (place % 2 == job.rank() % 2) members.insert(members.begin(), place);
    }
    job.begin(calls::CallRecord{1, "a test"});
    const auto part = job.subgroup(members, 5);
    expect(members[static_cast<std::size_t>(part->rank())] == job.rank(), "place in the subgroup");
    std::vector<std::int64_t> own(1000, job.rank());
    std::vector<std::int64_t> sum(own.size());
    std::vector<std::int64_t> all(members.size());
    part->all_reduce(std::as_bytes(std::span(own)), std::as_writable_bytes(std::span(sum)),
                     ElementType::int64, ReduceOp::sum);
    part->all_gather(std::as_bytes(std::span(own).first(1)),
                     std::as_writable_bytes(std::span(all)));
    std::int64_t expected = 0;
    for (std::size_t i = 0; i < members.size(); ++i) {
      expected += members[i];
      expect(all[i] == members[i], "all_gather");
    }
    expect(sum == std::vector<std::int64_t>(own.size(), expected), "all_reduce");
    job.end();
  };
  Sample sample("subgroups of sharings");
  for (const Sharing& sharing : kSharings) {
    for (const LaunchMode mode : kModes) {
      for (const Backend backend : kBackends) {
        if (!sample.next()) continue;
        check_launched(body, {.replicas = sharing.replicas,
                              .workers = sharing.workers,
                              .mode = mode,
                              .backend = backend});
      }
    }
  }
}

TEST_CASE("workers: lines of those with several replicas carry the worker's number") {
  const Ended ended = launched(
      [] {
        for (std::size_t turn = 0; turn < 4; ++turn) {
          meet();
          if (turn == own_index()) std::cout << "from " << turn << std::endl;
        }
      },
      {.replicas = 4, .workers = 3, .prints = Prints::all});
  CHECK(ended.status == 0);
  auto out = lines_of(ended.out);
  std::sort(out.begin(), out.end());
  CHECK(out ==
        std::vector<std::string>{"[replica 2] from 2", "[replica 3] from 3", "from 0", "from 1"});
  const Ended two = launched(
      [] {
        if (own_index() == 2) std::cout << "from 2" << std::endl;
      },
      {.replicas = 4, .workers = 2, .prints = Prints::all});
  CHECK(two.out == "[worker 1] from 2\n");
}

TEST_CASE("workers: no more of them than replicas") {
  const std::string rule = "; it must be from 1 to that, or 0 for as many";
  CHECK(refusal_of({.replicas = 4, .workers = 5}) == "launch: workers is 5 for 4 replicas" + rule);
  CHECK(refusal_of({.workers = 2}) == "launch: workers is 2 for 1 replica" + rule);
  CHECK(refusal_of({.replicas = 4, .workers = -1}) ==
        "launch: workers is -1 for 4 replicas" + rule);
}
