#include "framework/engines/stop_grace.h"

#include "tests/catch.h"
#include "trainers/bench/testing/temporary_folder.h"

using namespace lockstep;
using namespace lockstep::engines;

TEST_CASE("a run tells the last save's and step's time beside the engine's, and what gives more") {
  const StopGrace grace{1, "mpirun", "mpirun --mca x SECONDS gives more"};
  CHECK(grace_text(grace, {2, std::nullopt}) == "mpirun kills processes 1 s after SIGTERM");
  CHECK(grace_text(grace, {0.5, 0.0421}) ==
        "the last save took 0.0421 s and the last step 0.5 s; mpirun kills processes 1 s after "
        "SIGTERM");
  CHECK(grace_text(grace, {0.1, 4.2}) ==
        "the last save took 4.2 s and the last step 0.1 s, but mpirun kills processes 1 s after "
        "SIGTERM: mpirun --mca x SECONDS gives more");
  CHECK(grace_text({0.25, "mpiexec", ""}, {12, 0.1}) ==
        "the last save took 0.1 s and the last step 12 s, but mpiexec kills processes 0.25 s after "
        "SIGTERM");
  CHECK(is_too_short(grace, {0.5, 0.75}));
  CHECK_FALSE(is_too_short(grace, {0.5, 0.5}));
  CHECK_FALSE(is_too_short(grace, {2, std::nullopt}));
}

TEST_CASE("Slurm's KillWait is read from its configuration") {
  const testing::TemporaryFolder folder;
  const auto kill_wait = [&](const std::string& text) {
    folder.write("slurm.conf", text);
    return kill_wait_in(folder.path() / "slurm.conf");
  };
  CHECK(kill_wait("ClusterName=a\nKillWait=10\nKillOnBadExit=0\n") == 10);
  CHECK(kill_wait("  killwait = 120 # seconds\n") == 120);
  CHECK(kill_wait("\tKILLWAIT=65533") == 65533);
  for (const std::string text : {"", "ClusterName=a\n", "#KillWait=10\n", "KillWait\n",
                                 "KillWait=\nKillWait=x\n", "MyKillWait=10\n"}) {
    INFO(text);
    CHECK(kill_wait(text) == 30);  // its own default
  }
  CHECK(kill_wait_in(folder.path() / "none.conf") == 30);
}
