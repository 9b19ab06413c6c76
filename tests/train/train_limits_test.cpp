// What train does under the limits that shells and clusters set: ulimit.

#include <chrono>
#include <filesystem>
#include <string>
#include <utility>
#include <vector>

#include "framework/base/text.h"
#include "tests/catch.h"
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
Ended train_under(const std::string& limits, const TemporaryFolder& folder, const Flags& flags) {
  std::vector<std::string> command{"/bin/sh", "-c", limits + " && exec \"$@\"", "sh"};
  for (const std::string& word : train_command(flags)) command.push_back(word);
  return ChildProgram(command, folder.path()).wait(std::chrono::seconds(100));
}

}  // namespace

TEST_CASE("few addresses (ulimit -v) are an error with the limit and its number, never a hang") {
  // KiB, and how messages have them. The first two are less than the libraries take at their start.
  const std::vector<std::pair<int, std::string>> limits{{600'000, "585"},
                                                        {800'000, "781"},
                                                        {1'000'000, "976"},
                                                        {1'200'000, "1.1 GiB"},
                                                        {1'500'000, "1.4 GiB"}};
  for (const auto& [addresses, number] : limits) {
    for (const auto& [launch, replicas] :
         {std::pair("processes", "4"), std::pair("threads", "2")}) {
      INFO(addresses << " KiB, " << replicas << " " << launch);
      const TemporaryFolder folder;
      const Ended end =
          train_under(str("ulimit -v ", addresses), folder,
                      limited_job() + Flags{"--replicas", replicas, "--launch", launch});
      INFO(end.err);
      CHECK(!end.by_signal);
      if (addresses < 1'000'000) CHECK(end.status == 2);
      if (end.status == 0) continue;
      CHECK_THAT(end.err, ContainsSubstring("lockstep: error: ") &&
                              ContainsSubstring("(ulimit -v)") && ContainsSubstring(number));
      CHECK_THAT(end.err, !ContainsSubstring("terminate called"));
    }
  }
}

TEST_CASE("a small stack (ulimit -s) is an error with the limit and its number") {
  for (const std::string launch : {"processes", "threads"}) {
    const TemporaryFolder folder;
    const Flags flags = limited_job() + Flags{"--replicas", "2", "--launch", launch};
    const Ended refused = train_under("ulimit -s 64", folder, flags);
    INFO(refused.err);
    CHECK(refused.status == 2);
    CHECK_THAT(refused.err,
               ContainsSubstring("a stack may have no more than 64.0 KiB here (ulimit -s)"));
    // Threads don't depend on it, and what is the user's own to raise is raised.
    for (const std::string enough : {"ulimit -s 512", "ulimit -S -s 64"}) {
      const TemporaryFolder other;
      const Ended end = train_under(enough, other, flags);
      INFO(enough << "\n" << end.err);
      CHECK(end.status == 0);
    }
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
    INFO(end.err);
    CHECK(end.status == 143);
    CHECK(!end.by_signal);
    CHECK_THAT(end.err, ContainsSubstring("SIGXCPU: replicas end at their next step"));
    CHECK(fs::exists(folder.path() / "run/checkpoints/latest/manifest.json"));
  }
}

TEST_CASE("a limit on the size of files (ulimit -f) counts as a full disk where it is reached") {
  // In blocks of 512 bytes: 64 MiB, which the memory of one replica fits into. A checkpoint of this
  // model takes 82 MB.
  const std::string limit = "ulimit -f 131072";
  const Flags flags = limited_job() + set("model.hidden=[2048,2048,512] data.batch_size=500") +
                      Flags{"--replicas", "1", "--launch", "threads"};
  const TemporaryFolder folder;
  const Ended end = train_under(limit, folder, flags);
  INFO(end.err);
  CHECK(end.status == 1);
  CHECK_THAT(end.err, ContainsSubstring("the checkpoint of step 2 can't be saved: ") &&
                          ContainsSubstring(": File too large; files may have no more than 64.0 "
                                            "MiB (ulimit -f)"));
  const TemporaryFolder other;
  const Ended warned = train_under(limit, other, flags + set("checkpoint.on_error=warn"));
  INFO(warned.err);
  CHECK(warned.status == 0);
  CHECK_THAT(warned.err, ContainsSubstring("warning: the checkpoint of step 2 can't be saved: "));
  const TemporaryFolder third;
  const Ended refused = train_under("ulimit -f 1", third, limited_job());
  INFO(refused.err);
  CHECK(!refused.by_signal);
  CHECK(refused.status != 0);
  CHECK_THAT(refused.err, ContainsSubstring("(ulimit -f)"));
}
