#include "trainers/commands/opened_checkpoint.h"

#include <atomic>
#include <exception>
#include <filesystem>
#include <string>
#include <thread>

#include "framework/base/errors.h"
#include "tests/catch.h"
#include "tests/data/made_set.h"
#include "tests/support/temporary_folder.h"
#include "tests/trainers/runs.h"
#include "trainers/run/resume.h"

using namespace lockstep;
using namespace lockstep::testing;

namespace {

// Trains so many steps, each with a checkpoint, of which one remains.
void train_steps(const std::filesystem::path& output, int steps) {
  const Config config =
      parse_config(str("model: {name: linear}\ndata: {name: pmean_example, batch_size: 4}\n"
                       "trainer: {steps: ",
                       steps, "}\ncheckpoint: {every: 1, keep: 1}\n"),
                   "test");
  train_in_map(config, {.train = made_set({.size = 13})}, {.output = output});
}

}  // namespace

TEST_CASE("a run's newest checkpoint can be opened while the run removes the others") {
  const TemporaryFolder folder;
  const std::filesystem::path run = folder.path() / "run";
  std::atomic<bool> has_ended = false;
  std::exception_ptr failure;
  std::thread training([&] {
    try {
      train_steps(run, 60);
    } catch (...) {
      failure = std::current_exception();
    }
    has_ended = true;
  });
  std::string problem;
  std::int64_t opened = 0;
  for (std::int64_t last = 0; !has_ended;) {
    if (!std::filesystem::exists(run / "checkpoints/latest")) continue;
    try {
      const auto checkpoint = open_checkpoint("test", run / "checkpoints/latest");
      if (checkpoint.info.step < last) problem = "an older step";
      last = checkpoint.info.step;
      ++opened;
    } catch (const Error& error) {
      problem = error.what();
    }
  }
  training.join();
  CHECK(!failure);
  CHECK(problem == "");
  CHECK(opened > 0);
}

TEST_CASE("a checkpoint that its run removes before its weights are read says so") {
  const TemporaryFolder folder;
  train_steps(folder.path() / "run", 1);
  const auto checkpoint = open_checkpoint("test", folder.path() / "run/checkpoints/latest");
  std::filesystem::remove_all(checkpoint.folder);
  CHECK_THROWS_WITH(checkpoint.model(),
                    ContainsSubstring("step-00000001 was removed since it was opened") &&
                        ContainsSubstring("a run keeps checkpoint.keep of the newest"));
}

TEST_CASE("a checkpoint of a Lockstep that is too old is an error that names it and the rule") {
  const TemporaryFolder folder;
  train_steps(folder.path() / "run", 1);
  CheckpointInfo info = checkpoint_info(folder.path() / "run/checkpoints/latest");
  CHECK(config_in_checkpoint("c", info).data.name == "pmean_example");
  info.counts[kSafeConvolutionsCount] = 1;
  CHECK_THROWS_WITH(config_in_checkpoint("c", info),
                    "c was saved by a Lockstep that is too old: its 'safe_convolutions' must be at "
                    "least 2, is 1");
}
