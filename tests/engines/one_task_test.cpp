#include "framework/engines/one_task.h"

#include <cstdint>
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

}  // namespace

TEST_CASE("one task on each host is all that a program takes") {
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
