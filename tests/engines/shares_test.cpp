#include "framework/engines/shares.h"

#include <cstdint>
#include <utility>
#include <vector>

#include "framework/base/errors.h"
#include "tests/catch.h"
#include "tests/support/message_of.h"

using namespace lockstep;
using namespace lockstep::engines;

namespace {

using Numbers = std::vector<std::int64_t>;

Whereabouts started_by_srun(const Numbers& tasks) {
  return {.engine = Engine::slurm,
          .hosts = std::ssize(tasks),
          .local_tasks = tasks[0],
          .tasks = tasks,
          .starter = "srun",
          .one_task_a_host = "srun --ntasks-per-node=1 -c CORES"};
}

Numbers shares(const Numbers& tasks, std::int64_t replicas) {
  return shares_of_hosts(started_by_srun(tasks), replicas, "train");
}

}  // namespace

TEST_CASE("shares of replicas follow the tasks of hosts") {
  CHECK(shares({3, 1}, 4) == Numbers{3, 1});
  CHECK(shares({3, 1}, 8) == Numbers{6, 2});
  CHECK(shares({2, 4, 2}, 4) == Numbers{1, 2, 1});
  CHECK(shares({4}, 3) == Numbers{3});
}

TEST_CASE("hosts with as many tasks each have even shares, the first ones the remainder") {
  CHECK(shares({1, 1}, 5) == Numbers{3, 2});
  CHECK(shares({2, 2, 2}, 4) == Numbers{2, 1, 1});
  CHECK(shares({2, 2}, 1) == Numbers{1, 0});
  const Whereabouts by_mpi{.engine = Engine::mpi, .host = 1, .hosts = 2};
  CHECK(shares_of_hosts(by_mpi, 4, "train") == Numbers{2, 2});
  CHECK(shares_of_hosts(Whereabouts(), 4, "train") == Numbers{4});
}

TEST_CASE("tasks that do not add up are refused with the command that would be right") {
  CHECK(testing::message_of<ValueError>([] {
          (void)shares({3, 1}, 6);
        }) ==
        "srun has started 4 tasks on 2 hosts (3, 1), and 6 replicas can't be shared out as they "
        "are: take a multiple of 4 replicas, or start one task on each host: srun "
        "--ntasks-per-node=1 -c CORES train …");
  const Whereabouts uneven{.engine = Engine::torchrun,
                           .host = 1,
                           .hosts = 2,
                           .local_tasks = 3,
                           .starter = "torchrun",
                           .one_task_a_host = "torchrun --nproc-per-node=1 --no-python"};
  CHECK(testing::message_of<ValueError>([&] { (void)shares_of_hosts(uneven, 4, "train"); }) ==
        "torchrun has started 3 tasks on host 1 of 2, and not as many on each. Start one on each: "
        "torchrun --nproc-per-node=1 --no-python train …");
}

TEST_CASE("one task on each host is all that a program without shares takes") {
  const auto refusal = [](const Whereabouts& where) {
    return testing::message_of<ValueError>([&] { require_one_task(where, "train"); });
  };
  for (const Whereabouts& where : {Whereabouts(), started_by_srun({1}), started_by_srun({1, 1}),
                                   Whereabouts{.engine = Engine::mpi, .host = 1, .hosts = 2}}) {
    CHECK(refusal(where) == "no error");
  }
  // On all tasks: this one is alone on its host.
  Whereabouts where = started_by_srun({3, 1});
  where.host = where.local_tasks = 1;
  CHECK(refusal(where) ==
        "srun has started 4 tasks on 2 hosts, but one on each host runs all its replicas: srun "
        "--ntasks-per-node=1 -c CORES train …; --engine none makes each a run of its own");
  CHECK_THAT(refusal(started_by_srun({4})), ContainsSubstring("4 tasks on 1 host, but one"));
}
