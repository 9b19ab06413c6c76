#include "framework/engines/local_tasks.h"

#include <cstddef>
#include <cstdint>
#include <functional>
#include <string>
#include <vector>

#include "framework/base/errors.h"
#include "framework/base/range.h"
#include "tests/catch.h"
#include "tests/support/message_of.h"

using namespace lockstep;
using namespace lockstep::engines;

namespace {

using Numbers = std::vector<std::int64_t>;

Whereabouts started_by_srun(const Numbers& tasks) {
  return {.engine = Engine::slurm,
          .hosts = std::ssize(tasks),
          .job = "18",
          .step = "0",
          .local_tasks = tasks[0],
          .all_tasks = sum_of(tasks, std::identity()),
          .tasks = tasks,
          .starter = "srun",
          .one_task_a_host = "srun --ntasks-per-node=1 -c CORES"};
}

}  // namespace

TEST_CASE("several tasks on a host need a job by which they find each other") {
  const auto refusal = [](const Whereabouts& where) {
    return testing::message_of<ValueError>([&] { require_known_tasks(where, "train"); });
  };
  const Whereabouts lone{.engine = Engine::mpi, .host = 1, .hosts = 2, .all_tasks = 2};
  for (const Whereabouts& where : {Whereabouts(), lone, started_by_srun({1}), started_by_srun({4}),
                                   started_by_srun({1, 1}), started_by_srun({3, 1})}) {
    CHECK(refusal(where) == "no error");
  }
  Whereabouts by_mpich{.engine = Engine::mpi,
                       .local_tasks = 4,
                       .all_tasks = 4,
                       .tasks = {4},
                       .starter = "mpiexec",
                       .one_task_a_host = "mpiexec -ppn 1"};
  CHECK(refusal(by_mpich) ==
        "mpiexec has started 4 tasks on 1 host and does not tell of which job, by which these "
        "would find each other. One on each host runs all its replicas: mpiexec -ppn 1 train …; "
        "--engine none makes each a run of its own");
  by_mpich.local_job = "node0:29500";
  CHECK(refusal(by_mpich) == "no error");
}

TEST_CASE("what tells tasks of a host and job from others") {
  const Whereabouts where = started_by_srun({2, 2});
  CHECK(!local_job_of(where).empty());
  const std::vector<std::function<void(Whereabouts&)>> changes{
      [](Whereabouts& other) { other.engine = Engine::torchrun; },
      [](Whereabouts& other) { other.host = 1; },
      [](Whereabouts& other) { other.job = "19"; },
      [](Whereabouts& other) { other.step = "1"; },
      [](Whereabouts& other) { other.restarts = 1; },
      [](Whereabouts& other) { other.local_job = "node0:29500"; }};
  for (const auto& change : changes) {
    Whereabouts other = where;
    change(other);
    CHECK(local_job_of(other) != local_job_of(where));
  }
  Whereabouts second = where;
  second.local_rank = 1;
  CHECK(local_job_of(second) == local_job_of(where));
  CHECK(text_of_task(second) ==
        "task 1 of 2 here: lends its cores to task 0, and ends with its status");
  CHECK(text_of_task(where) ==
        "task 0 of 2 here: runs the program for all of them, on the cores of all");
  CHECK(text_of_task(started_by_srun({1, 2})).empty());
  CHECK(one_task_command(where, "train", 8) == "srun --ntasks-per-node=1 -c 8 train …");
}

TEST_CASE("cores that the first task does not get are told, with the engine's remedy") {
  CoreSet lent, got;
  for (const std::size_t core : {0, 1, 2, 3, 8, 9, 10, 11}) lent.add(core);
  got.add(0);
  const Whereabouts where = started_by_srun({4});
  CHECK(missing_cores(where, lent, lent, "train").empty());
  CHECK(missing_cores(where, lent, got, "train") ==
        "the 4 tasks of this host have 8 cores (0-3,8-11), and task 0, which runs the program for "
        "all of them, gets 1 core (0): its control group allows no others. Alone it has all: srun "
        "--ntasks-per-node=1 -c 8 train …");
}

TEST_CASE("shares of replicas follow tasks") {
  const auto shares = [](const Numbers& tasks, std::int64_t replicas) {
    Numbers all;
    for (std::size_t host = 0; host < tasks.size(); ++host) {
      Whereabouts where = started_by_srun(tasks);
      where.host = static_cast<std::int64_t>(host);
      where.local_tasks = tasks[host];
      all.push_back(share_of_replicas(where, replicas, "train"));
    }
    return all;
  };
  CHECK(shares({3, 1}, 4) == Numbers{3, 1});
  CHECK(shares({3, 1}, 8) == Numbers{6, 2});
  CHECK(shares({1, 4, 2}, 7) == Numbers{1, 4, 2});
  CHECK(shares({4, 2}, 3) == Numbers{2, 1});
  CHECK(shares({2, 2}, 4) == Numbers{2, 2});
  CHECK(shares({2, 2}, 3) == Numbers{0, 0});  // an even share: the first has one more
  CHECK(shares({1, 1}, 4) == Numbers{0, 0});
  CHECK(shares({4}, 3) == Numbers{0});
  // All tasks refuse, also those of the host whose own share would be whole.
  for (const auto& [host, tasks] : {std::pair<std::int64_t, std::int64_t>{0, 6}, {1, 2}}) {
    Whereabouts where = started_by_srun({6, 2});
    where.host = host;
    where.local_tasks = tasks;
    CHECK(testing::message_of<ValueError>([&] { (void)share_of_replicas(where, 5, "train"); }) ==
          "srun has started 8 tasks on 2 hosts (6 + 2), by which 5 replicas can't be shared: train "
          "--replicas 8 …, or srun --ntasks-per-node=1 -c CORES train …");
  }
}

TEST_CASE("where other hosts' tasks are not known, replicas divide by all tasks") {
  const Whereabouts where{.engine = Engine::torchrun,
                          .hosts = 2,
                          .local_tasks = 3,
                          .all_tasks = 4,
                          .local_job = "node0:29500",
                          .starter = "torchrun",
                          .one_task_a_host = "torchrun --nproc_per_node=1 --no_python"};
  CHECK(share_of_replicas(where, 8, "train") == 6);
  CHECK(testing::message_of<ValueError>([&] { (void)share_of_replicas(where, 6, "train"); }) ==
        "torchrun has started 4 tasks on 2 hosts, by which 6 replicas can't be shared: train "
        "--replicas 8 …, or torchrun --nproc_per_node=1 --no_python train …");
}
