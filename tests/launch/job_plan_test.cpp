#include "framework/launch/job_plan.h"

#include <cstddef>
#include <cstdint>
#include <initializer_list>
#include <limits>
#include <random>
#include <string>
#include <vector>

#include "framework/base/errors.h"
#include "framework/base/record.h"
#include "framework/comm/network/link.h"
#include "tests/catch.h"
#include "tests/support/message_of.h"
#include "tests/support/settings.h"

using namespace lockstep;
using launcher::JobLayout;
using Counts = std::vector<std::int64_t>;

namespace {

Counts workers_of(const JobLayout& layout) {
  Counts counts;
  for (const JobLayout::Host& host : layout.hosts()) counts.push_back(host.workers.size);
  return counts;
}

}  // namespace

TEST_CASE("a job's workers go to the hosts with the most replicas a worker") {
  CHECK(workers_of(JobLayout(Counts{3, 2}, 5)) == Counts{3, 2});
  CHECK(workers_of(JobLayout(Counts{3, 2}, 2)) == Counts{1, 1});
  CHECK(workers_of(JobLayout(Counts{5, 1}, 4)) == Counts{3, 1});
  CHECK(workers_of(JobLayout(Counts{2, 2, 2}, 4)) == Counts{2, 1, 1});
  CHECK(workers_of(JobLayout(Counts{1, 4, 1}, 5)) == Counts{1, 3, 1});
  CHECK(JobLayout(Counts{5, 1}, 4).most_replicas_a_worker() == 2);
}

TEST_CASE("the replicas of hosts that are gone go to the others") {
  const auto replicas_of = [](const JobLayout& layout) {
    Counts counts;
    for (const JobLayout::Host& host : layout.hosts()) counts.push_back(host.replicas.size);
    return counts;
  };
  const JobLayout four(Counts{2, 2, 1, 3}, 7);
  REQUIRE(workers_of(four) == Counts{2, 2, 1, 2});
  const JobLayout two = four.without({true, false, true, false});
  CHECK(replicas_of(two) == Counts{5, 0, 3, 0});
  CHECK(workers_of(two) == Counts{2, 0, 1, 0});
  CHECK(two.replicas() == 8);
  CHECK(two.host_of_worker(1) == 0);
  CHECK(two.host_of_worker(2) == 2);
  CHECK(two.replicas_of_worker(2).offset == 5);
  CHECK(two.replicas_of_worker(2).size == 3);
  const JobLayout one = two.without({true, false, false, false});
  CHECK(replicas_of(one) == Counts{8, 0, 0, 0});
  CHECK(workers_of(one) == Counts{2, 0, 0, 0});
  CHECK(one.most_replicas_a_worker() == 4);
}

TEST_CASE("a layout numbers replicas and workers host by host, each once") {
  std::mt19937_64 random(testing::seed());
  const auto up_to = [&](std::int64_t most) {
    return std::uniform_int_distribution<std::int64_t>(1, most)(random);
  };
  for (int round = 0; round < 200; ++round) {
    Counts hosts(static_cast<std::size_t>(up_to(6)));
    std::int64_t replicas = 0;
    for (std::int64_t& host : hosts) replicas += host = up_to(5);
    const auto count = static_cast<std::int64_t>(hosts.size());
    const std::int64_t workers = count + up_to(replicas - count + 1) - 1;
    const JobLayout layout(hosts, workers);
    REQUIRE(layout.replicas() == replicas);
    REQUIRE(layout.workers() == workers);
    std::int64_t next = 0;
    std::size_t host = 0;
    for (std::int64_t worker = 0; worker < workers; ++worker) {
      const Range its = layout.replicas_of_worker(worker);
      CHECK(its.offset == next);
      CHECK(its.size >= 1);
      CHECK(its.size <= layout.most_replicas_a_worker());
      next += its.size;
      CHECK(layout.host_of_worker(worker) - host <= 1);
      host = layout.host_of_worker(worker);
      const Range& of_host = layout.hosts()[host].replicas;
      CHECK(its.offset >= of_host.offset);
      CHECK(its.offset + its.size <= of_host.offset + of_host.size);
    }
    CHECK(next == replicas);
  }
}

TEST_CASE("a worker reads its job's plan as the launcher has written it") {
  const auto read = [](const launcher::JobPlan& plan) {
    return decode<launcher::JobPlan>(encode(plan), "a plan");
  };
  launcher::JobPlan plan{JobLayout(Counts{3, 2}, 4), 7};
  const auto alone = read(plan);
  CHECK(workers_of(alone.layout) == workers_of(plan.layout));
  CHECK(alone.layout.replicas() == 5);
  CHECK(alone.math_threads == 7);
  CHECK(!alone.network);
  const auto secret = comm::Secret({std::byte{1}, std::byte{255}}).of_job(comm::new_job_id());
  plan.network.emplace(comm::NetworkOptions{"10.0.0.1", secret, comm::new_job_id()});
  const auto joined = read(plan);
  REQUIRE(joined.network);
  CHECK(joined.network->address == "10.0.0.1");
  CHECK(joined.network->job == plan.network->job);
  CHECK(joined.network->secret.fields() == secret.fields());
}

TEST_CASE("a layout that can't be is refused") {
  using Hosts = std::vector<JobLayout::Host>;
  const auto problem_of = [](const Hosts& hosts) {
    return testing::message_of<DataError>(
        [&] { (void)decode<JobLayout>(encode(hosts), "a layout"); });
  };
  const std::int64_t most = std::numeric_limits<std::int64_t>::max();
  CHECK(problem_of({{{0, 3}, {0, 2}}, {{3, 0}, {2, 0}}, {{3, 2}, {2, 2}}}) == "no error");
  for (const Hosts& wrong : std::initializer_list<Hosts>{{},
                                                         {{{0, 0}, {0, 0}}},
                                                         {{{0, 2}, {0, 0}}},
                                                         {{{0, 2}, {0, 3}}},
                                                         {{{0, 2}, {0, -1}}},
                                                         {{{0, -2}, {0, -2}}},
                                                         {{{0, most}, {0, 1}}},
                                                         {{{1, 2}, {0, 1}}},
                                                         {{{0, 2}, {0, 1}}, {{1, 2}, {1, 1}}},
                                                         {{{0, 2}, {0, 1}}, {{2, 2}, {0, 1}}}}) {
    CHECK(problem_of(wrong) == "a layout is damaged: it can't be at byte " +
                                   std::to_string(4 + 32 * wrong.size()) + " of " +
                                   std::to_string(4 + 32 * wrong.size()));
  }
}

TEST_CASE("hosts share a job's replicas evenly, or as all of them ask") {
  LaunchOptions options{.replicas = 5, .workers = 5};
  const auto replicas_of = [&](const Counts& asked) {
    Counts counts;
    const Counts cores(asked.size(), 8);
    const launcher::JobPlan plan = launcher::make_plan(options, asked, cores);
    for (const auto& host : plan.layout.hosts()) {
      counts.push_back(host.replicas.size);
    }
    return counts;
  };
  CHECK(replicas_of({0}) == Counts{5});
  CHECK(replicas_of({0, 0}) == Counts{3, 2});
  CHECK(replicas_of({1, 4}) == Counts{1, 4});
  CHECK_THROWS_WITH(replicas_of({5, 0}),
                    "host 1 does not say how many replicas it runs, but other hosts do: give "
                    "--host-replicas on all hosts or on none");
  CHECK_THROWS_WITH(replicas_of({1, 3}), "the hosts run 1 + 3 = 4 replicas, and the job has 5");
  CHECK(launcher::make_plan(options, {2, 3}, {8, 6}).math_threads == 2);
  CHECK(launcher::make_plan(options, {2, 3}, {1, 64}).math_threads == 1);
  options.threads_per_replica = 3;
  CHECK(launcher::make_plan(options, {2, 3}, {8, 6}).math_threads == 3);
}
