#include "framework/engines/few_cores.h"

#include "tests/catch.h"

using namespace lockstep;
using namespace lockstep::engines;

TEST_CASE("a task with fewer cores than replicas, or with one, is told how it gets more") {
  const Whereabouts by_srun{.engine = Engine::slurm, .more_cores = "srun -c CORES gives it more"};
  CHECK(few_cores_text(by_srun, 1, 64, 1) ==
        "this task may use 1 of this host's 64 cores, and runs 1 replica: srun -c CORES gives it "
        "more");
  CHECK(few_cores_text(by_srun, 3, 64, 4) ==
        "this task may use 3 of this host's 64 cores, and runs 4 replicas at once: srun -c CORES "
        "gives it more");
  CHECK(few_cores_text(by_srun, 4, 64, 4).empty());
  CHECK(few_cores_text(by_srun, 2, 64, 1).empty());
  CHECK(few_cores_text(by_srun, 2, 2, 4).empty());  // there are no more
  CHECK(few_cores_text(by_srun, 1, 1, 1).empty());
  CHECK(few_cores_text(Whereabouts(), 1, 64, 4).empty());  // as a user has bound it
}
