#include "framework/replicas/job_layout.h"

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <random>
#include <string>
#include <vector>

#include "framework/replicas/hosts.h"
#include "tests/catch.h"
#include "tests/support/settings.h"

using namespace lockstep;
using replicas::JobLayout;
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
  replicas::JobPlan plan{JobLayout(Counts{3, 2}, 4), 7};
  const auto alone = replicas::JobPlan::parse(plan.text());
  CHECK(workers_of(alone.layout) == workers_of(plan.layout));
  CHECK(alone.math_threads == 7);
  CHECK(!alone.network);
  const auto secret = comm::Secret({std::byte{1}, std::byte{255}}).of_job(comm::new_job_id());
  plan.network.emplace(replicas::JobPlan::Network{"10.0.0.1", comm::new_job_id(), secret});
  const auto read = replicas::JobPlan::parse(plan.text());
  REQUIRE(read.network);
  CHECK(read.network->address == "10.0.0.1");
  CHECK(read.network->job == plan.network->job);
  CHECK(read.network->secret.bytes() == secret.bytes());
}
