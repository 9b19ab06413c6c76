#include <filesystem>
#include <string>

#include "tests/catch.h"
#include "tests/support/files.h"
#include "tests/train/same_run.h"
#include "tests/train/train_in_fork.h"
#include "tests/train/train_program.h"
#include "trainers/bench/testing/temporary_folder.h"

using namespace lockstep;
using namespace lockstep::testing;

namespace {

namespace fs = std::filesystem;

// 24 steps of two replicas with a warm-up. Validation figures decide after each fourth. The best
// are those of step 12: with one evaluation more after it the run would end after step 20.
Flags job(const fs::path& folder) {
  std::string rows = "x,y\n";
  for (int i = 0; i < 40; ++i) rows += std::to_string(i) + "," + std::to_string(i % 7) + "\n";
  write_text(folder / "table.csv", rows);
  write_text(folder / "job.yaml",
             "model: {name: mlp, hidden: [4]}\n"
             "data: {name: csv, file: table.csv, test_file: table.csv, target: y, task: "
             "regression, batch_size: 4, validation: 0.2}\n"
             "optimizer: {name: sgd, lr: 0.5}\n"
             "schedule: {name: cosine, warmup_steps: 10}\n"
             "parallel: {replicas: 2}\n"
             "trainer: {steps: 24, log_every: 1, eval_every: 4, patience: 3}\n"
             "checkpoint: {best: loss}\n");
  return {"--config", "job.yaml"};
}

const Flags kGoOn{"--output", "run", "--resume", "auto"};

}  // namespace

TEST_CASE("--stop-after ends a run with a checkpoint, and what goes on ends as the whole run") {
  const TemporaryFolder folder;
  const fs::path run = folder.path() / "run";
  const Flags flags = job(folder.path());
  const Ended whole = must_train(folder.path(), flags + Flags{"--output", "whole"});
  CHECK_THAT(whole.out, !ContainsSubstring("stopped after"));
  // A shorter run would lack room for the warm-up.
  CHECK_THAT(refusal(folder.path(), flags + set("trainer.steps=2")),
             ContainsSubstring("schedule.warmup_steps: must be at most the run's 2 steps"));
  const Ended stopped =
      must_train(folder.path(), flags + Flags{"--output", "run", "--stop-after", "2"});
  CHECK_THAT(stopped.out, ContainsSubstring("step 2/2 ") &&
                              ContainsSubstring("step 2: validation loss ") &&
                              ContainsSubstring("step 2: test loss ") &&
                              ContainsSubstring("\nstopped after step 2, with a checkpoint: "
                                                "--output run --resume auto goes on\nresults in "));
  CHECK_THAT(stopped.err, !ContainsSubstring("warning"));
  CHECK(result_of(run)["steps"] == 2);
  CHECK(metrics_of(run)[1]["lr"] == metrics_of(folder.path() / "whole")[1]["lr"]);
  CHECK(read_json(run / "checkpoints/latest/manifest.json")["step"] == 2);
  // Again and again, in other places, also where nothing is left to do.
  must_train(folder.path(), flags + kGoOn + Flags{"--stop-after", "14", "--launch", "threads"});
  CHECK(result_of(run)["steps"] == 14);
  for (const std::string n : {"14", "3"}) {
    const Ended none = must_train(folder.path(), flags + kGoOn + Flags{"--stop-after", n});
    CHECK_THAT(none.out, ContainsSubstring("there is no step left to train: --stop-after is " + n));
    CHECK(result_of(run)["steps"] == 14);
  }
  const Ended end = must_train(folder.path(), flags + kGoOn + Flags{"--stop-after", "25"});
  CHECK_THAT(end.out, ContainsSubstring("--stop-after 25 is beyond the run's last step, 24: it "
                                        "ends there") &&
                          !ContainsSubstring("stopped after"));
  CHECK(result_of(run)["steps"] == 24);
  for (const char* const field : {"loss", "eval", "validation", "parameters_sha256"}) {
    CHECK(result_of(run)[field] == result_of(folder.path() / "whole")[field]);
  }
  CHECK(read_json(run / "checkpoints/best/manifest.json")["step"] ==
        read_json(folder.path() / "whole/checkpoints/best/manifest.json")["step"]);
}

TEST_CASE("--stop-after says where it leaves no checkpoint, and what numbers it takes") {
  const TemporaryFolder folder;
  const Flags flags = job(folder.path()) + set("checkpoint=none");
  const Ended end = must_train(folder.path(), flags + Flags{"--stop-after", "1"});
  CHECK_THAT(end.out, ContainsSubstring("\nstopped after step 1, without a checkpoint: "
                                        "checkpoint.save is none\n"));
  check_refused(folder.path(), flags + Flags{"--stop-after", "0"},
                "--stop-after: must be an integer from 1 to 1000000000, is 0");
}
