// What train does under the limits that shells and clusters set: ulimit.

#include <chrono>
#include <filesystem>
#include <string>
#include <utility>
#include <vector>

#include "framework/base/text.h"
#include "tests/catch.h"
#include "tests/support/ended.h"
#include "tests/support/settings.h"
#include "tests/support/temporary_folder.h"
#include "tests/train/train_program.h"

using namespace lockstep;
using namespace lockstep::testing;

namespace {

namespace fs = std::filesystem;

// A perceptron whose checkpoint takes 600 KB: two steps.
Flags limited_job() {
  return Flags{"--config", config_file("fashion_mnist_mlp.yaml"), "--output", "run", "--quiet"} +
         set("model.hidden=[64] trainer.steps=2 trainer.log_every=1 data.batch_size=100");
}

// Ends what hangs.
Ended run_under(const std::string& limits, const TemporaryFolder& folder, const Flags& program) {
  const Flags shell{"/bin/sh", "-c", limits + " && exec \"$@\"", "sh"};
  return ChildProgram(shell + program, folder.path()).wait(std::chrono::seconds(100));
}

Ended train_under(const std::string& limits, const TemporaryFolder& folder, const Flags& flags) {
  return run_under(limits, folder, train_command(flags));
}

}  // namespace

TEST_CASE("little memory to map (ulimit -v, -d) is an error with the limit, never a hang") {
  struct Limit {
    std::string flag;
    int kib;
    std::string number;  // as messages have it
    bool is_early;       // it is less than the libraries take at their start
  };
  const std::vector<Limit> limits{
      {"-v", 600'000, "585", true},        {"-v", 800'000, "781", true},
      {"-v", 1'000'000, "976", false},     {"-v", 1'200'000, "1.1 GiB", false},
      {"-v", 1'500'000, "1.4 GiB", false}, {"-d", 100'000, "97", true},
      {"-d", 330'000, "322", false},       {"-d", 400'000, "390", false},
      {"-d", 600'000, "585", false}};
  Sample sample("limits of memory");
  for (const Limit& limit : limits) {
    for (const auto& [launch, replicas] :
         {std::pair("processes", "4"), std::pair("threads", "2")}) {
      if (!sample.next()) continue;
      const std::string command = str("ulimit ", limit.flag, " ", limit.kib);
      INFO(command << " KiB, " << replicas << " " << launch);
      const TemporaryFolder folder;
      const Ended end = train_under(
          command, folder, limited_job() + Flags{"--replicas", replicas, "--launch", launch});
      INFO(end.err);
      CHECK(!end.by_signal);
      if (limit.is_early) CHECK(end.status == 2);
      if (end.status == 0) continue;
      CHECK_THAT(end.err, ContainsSubstring("lockstep: error: ") &&
                              ContainsSubstring("(ulimit " + limit.flag + ")") &&
                              ContainsSubstring(limit.number));
      CHECK_THAT(end.err,
                 !ContainsSubstring("terminate called") && !ContainsSubstring("ulimit -u"));
    }
  }
}

TEST_CASE("a program of one's own ends under little memory (ulimit -v, -d) as train does") {
  for (const std::string limit : {"ulimit -v 600000", "ulimit -d 100000"}) {
    const TemporaryFolder folder;
    const Ended end = run_under(limit, folder, {OWN_TRAIN_BINARY, "--help"});
    INFO(limit << "\n" << end.err);
    CHECK(end.status == 2);
    CHECK_THAT(end.err, ContainsSubstring("lockstep: error: a process may have no more than ") &&
                            ContainsSubstring("(" + limit.substr(0, 9) + ")"));
  }
}

TEST_CASE("a small stack (ulimit -s) is an error with the limit and its number") {
  for (const std::string launch : {"processes", "threads"}) {
    const TemporaryFolder folder;
    const Flags flags = limited_job() + Flags{"--replicas", "2", "--launch", launch};
    const Ended refused = train_under("ulimit -s 256", folder, flags);
    check_status(refused, 2);
    CHECK_THAT(refused.err,
               ContainsSubstring("a stack may have no more than 256 KiB here (ulimit -s)"));
    check_status(train_under("ulimit -s 512", folder, flags), 0);
  }
}

TEST_CASE(
    "a run whose processor time is up (ulimit -t) ends with a checkpoint before it is killed") {
  for (const std::string launch : {"processes", "threads"}) {
    INFO(launch);
    const TemporaryFolder folder;
    const Flags flags =
        Flags{"--config", config_file("pmean_linear.yaml"), "--output", "run", "--quiet"} +
        Flags{"--replicas", "2", "--launch", launch} +
        set("trainer.steps=1000000000 trainer.log_every=1000000");
    const Ended end = train_under("ulimit -t 4", folder, flags);
    check_status(end, 143);
    CHECK(!end.by_signal);
    CHECK_THAT(end.err, ContainsSubstring("SIGXCPU: replicas end at their next step"));
    CHECK(fs::exists(folder.path() / "run/checkpoints/latest/manifest.json"));
  }
}

TEST_CASE("few open files (ulimit -n) are an error with the limit where they are too few") {
  for (const std::string launch : {"processes", "threads"}) {
    for (const int files : {8, 11, 14}) {
      INFO(launch << ", " << files << " files");
      const TemporaryFolder folder;
      const Ended end = train_under(
          str("ulimit -n ", files), folder,
          Flags{"--config", config_file("pmean_linear.yaml"), "--output", "run", "--quiet"} +
              Flags{"--replicas", "4", "--launch", launch} + set("trainer.steps=3"));
      INFO(end.err);
      if (end.status == 0 && files > 8) continue;
      CHECK((end.status != 0 && !end.by_signal));
      CHECK_THAT(end.err, ContainsSubstring(str("Too many open files; a process may have no more "
                                                "than ",
                                                files, " (ulimit -n)")));
    }
  }
}

TEST_CASE("a limit on the size of files (ulimit -f) counts as a full disk where it is reached") {
  // In blocks of 512 bytes: 64 MiB, which the memory of one replica fits into. A checkpoint of this
  // model takes 82 MB.
  const std::string limit = "ulimit -f 131072";
  const Flags flags = limited_job() +
                      set("model.hidden=[2048,2048,512] data.name=synthetic data.features=784 "
                          "data.samples=200 data.test_samples=10 data.batch_size=10") +
                      Flags{"--replicas", "1", "--launch", "threads"};
  const TemporaryFolder folder;
  const Ended end = train_under(limit, folder, flags);
  check_status(end, 1);
  CHECK_THAT(end.err, ContainsSubstring("the checkpoint of step 2 can't be saved: ") &&
                          ContainsSubstring(": File too large; files may have no more than 64.0 "
                                            "MiB (ulimit -f)"));
  const TemporaryFolder other;
  const Ended warned = train_under(limit, other, flags + set("checkpoint.on_error=warn"));
  check_status(warned, 0);
  CHECK_THAT(warned.err, ContainsSubstring("warning: the checkpoint of step 2 can't be saved: "));
  const TemporaryFolder third;
  const Ended refused = train_under("ulimit -f 1", third, limited_job());
  check_status(refused, 2);
  CHECK_THAT(refused.err, ContainsSubstring("files may have no more than 512 B here (ulimit -f)"));
  CHECK_FALSE(fs::exists(third.path() / "run"));
}
