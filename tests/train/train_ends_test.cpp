#include <cstdint>
#include <filesystem>
#include <string>
#include <utility>
#include <vector>

#include "framework/base/text.h"
#include "tests/catch.h"
#include "tests/support/files.h"
#include "tests/support/temporary_folder.h"
#include "tests/train/same_run.h"
#include "tests/train/train_in_fork.h"
#include "tests/train/train_program.h"

using namespace lockstep;
using namespace lockstep::testing;

namespace {

namespace fs = std::filesystem;
using Json = nlohmann::json;

// 24 steps of two replicas with a warm-up. Validation figures decide after each fourth.
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
             "trainer: {steps: 24, log_every: 1, eval_every: 4}\n"
             "checkpoint: {best: loss}\n");
  return {"--config", "job.yaml"};
}

// The step of the least validation loss in a run's metrics.
std::int64_t best_step_of(const fs::path& run) {
  Json best;
  for (const Json& line : metrics_of(run)) {
    if (!line.contains("validation_loss")) continue;
    if (best.is_null() || line["validation_loss"] < best["validation_loss"]) best = line;
  }
  return best["step"];
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
  CHECK_THAT(stopped.out, ContainsSubstring("step 2/24, stops at 2 ") &&
                              ContainsSubstring("step 2: validation loss ") &&
                              ContainsSubstring("step 2: test loss ") &&
                              ContainsSubstring("\nstopped after step 2 of 24, with a checkpoint: "
                                                "--output run --resume auto goes on\nresults in "));
  CHECK_THAT(stopped.err, !ContainsSubstring("warning"));
  CHECK(result_of(run)["steps"] == 2);
  CHECK(metrics_of(run)[1]["lr"] == metrics_of(folder.path() / "whole")[1]["lr"]);
  CHECK(read_json(run / "checkpoints/latest/manifest.json")["step"] == 2);
  // Again and again, in other places, also where nothing is left to do.
  const Ended further =
      must_train(folder.path(), flags + kGoOn + Flags{"--stop-after", "14", "--launch", "threads"});
  CHECK_THAT(
      further.out,
      ContainsSubstring("step 14/24, stops at 14 ") &&
          ContainsSubstring("\nbest so far (the evaluation of a stop does not count), step ") &&
          !ContainsSubstring("\nbest step "));
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

TEST_CASE(
    "a run tells what it is too short for at its begin, and targets of another size at its end") {
  const TemporaryFolder folder;
  const Flags flags = job(folder.path());
  const Flags late = set("trainer.eval_every=30 checkpoint.best=none optimizer.lr=1e-6");
  const std::string hint =
      "the run has 24 steps, fewer than trainer.eval_every (30): this comes at its end alone\n";
  const Ended small = must_train(folder.path(), flags + late);
  CHECK_THAT(small.out, ContainsSubstring("\n" + hint) && !ContainsSubstring("normalize_targets"));
  std::string rows = "x,y\n";
  for (int i = 0; i < 40; ++i) rows += str(i, ",", 1000 + i, "\n");
  folder.write("table.csv", rows);
  const Flags far = flags + late + Flags{"--output", "run"};
  const Ended stopped = must_train(folder.path(), far + Flags{"--stop-after", "2"});
  CHECK_THAT(stopped.out,
             ContainsSubstring("\n" + hint) && !ContainsSubstring("normalize_targets"));
  const Ended ended = must_train(folder.path(), far + Flags{"--resume", "auto"});
  CHECK_THAT(ended.out, !ContainsSubstring(hint) &&
                            ContainsSubstring("\nthe test loss is above 1") &&
                            ContainsSubstring(": data.normalize_targets: true gives the model "
                                              "targets of mean 0 and deviation 1\nresults in "));
}

TEST_CASE("figures of a stop do not count for trainer.patience") {
  const TemporaryFolder folder;
  // Nothing gets better after the first evaluation, and the fifth after it ends the run.
  const Flags flags = job(folder.path()) + set("optimizer.lr=1e-30 trainer.patience=5");
  must_train(folder.path(), flags + Flags{"--output", "run", "--stop-after", "14"});
  must_train(folder.path(), flags + kGoOn);
  CHECK(result_of(folder.path() / "run")["steps"] == 24);
}

TEST_CASE(
    "a run tells its best step, and the test set's figures of that one's weights, everywhere") {
  const TemporaryFolder folder;
  const Flags flags = job(folder.path());
  // What checkpoint.best adds must not change what is trained.
  must_train(folder.path(), flags + set("checkpoint.best=none") + Flags{"--output", "plain"});
  const std::int64_t best = best_step_of(folder.path() / "plain");
  REQUIRE(best < 24);
  const std::string step = "step " + std::to_string(best);
  Json first;
  const std::vector<std::pair<std::string, Flags>> placements{
      {"processes", {}},
      {"threads", {"--launch", "threads"}},
      {"worker", {"--workers", "1"}},
      {"sharded", set("parallel.zero_stage=3")}};
  for (const auto& [name, where] : placements) {
    INFO(name);
    const Ended end = must_train(folder.path(), flags + where + Flags{"--output", name});
    const fs::path run = folder.path() / name;
    const Json result = result_of(run);
    CHECK(digest_of(run) == digest_of(folder.path() / "plain"));
    CHECK(result["test"] == result["eval"]);
    CHECK(result["best"]["step"] == best);
    const std::string checkpoint = result["best"]["checkpoint"];
    CHECK(read_json(run / checkpoint / "manifest.json")["step"] == best);
    CHECK(result["test_best"]["step"] == best);
    CHECK(result["test_best"]["loss"] != result["eval"]["loss"]);
    if (first.is_null()) first = result;
    for (const char* const field : {"best", "test_best", "eval", "validation"}) {
      CHECK(result[field] == first[field]);
    }
    const auto lines = metrics_of(run);
    CHECK(lines.back() == Json{{"step", 24},
                               {"samples", 24 * 8},
                               {"weights", "trained"},
                               {"best_step", best},
                               {"test_best_loss", result["test_best"]["loss"]}});
    const Json test = lines[lines.size() - 2];
    CHECK(test["test_loss"] == result["eval"]["loss"]);
    CHECK(test["eval_loss"] == test["test_loss"]);
    CHECK(test["weights"] == "trained");
    // As the checkpoint itself says it.
    const Ended eval =
        train(folder.path(), {"eval", "--quiet", "--checkpoint", name + "/checkpoints/best"});
    const std::string figures = eval.out.substr(eval.out.find(step + ": test loss "));
    CHECK_THAT(end.out, ContainsSubstring("\nbest " + figures) &&
                            ContainsSubstring("\nbest " + step + ": validation loss ") &&
                            ContainsSubstring("; in " + name + "/" + checkpoint + "\n"));
  }
  // Nothing is left to train: all is told again, and no line of metrics comes twice.
  const auto lines = metrics_of(folder.path() / "threads");
  for (const bool is_killed_before : {false, true}) {
    if (is_killed_before) {
      fs::remove_all(folder.path() / "threads/checkpoints/step-00000024");
    }
    must_train(folder.path(), flags + Flags{"--output", "threads", "--resume", "auto"});
    CHECK(result_of(folder.path() / "threads")["test_best"] == first["test_best"]);
    CHECK(metrics_of(folder.path() / "threads") == lines);
  }
  // Figures that can't be had are a warning: the run is whole.
  const fs::path lost = folder.path() / "lost";
  const Flags saves = flags + set("checkpoint.every=" + std::to_string(best + 1));
  must_train(folder.path(), saves + Flags{"--output", "lost"});
  fs::remove_all(lost / "checkpoints/step-00000024");
  fs::remove_all(lost / first["best"]["checkpoint"].get<std::string>());
  const Ended end =
      must_train(folder.path(), saves + Flags{"--output", "lost", "--resume", "auto"});
  CHECK_THAT(end.err, ContainsSubstring("warning: the best step's figures of the test set are left "
                                        "out: its checkpoint is no longer there"));
  CHECK_THAT(end.out, ContainsSubstring("\nbest " + step + ": validation loss "));
  CHECK(digest_of(lost) == digest_of(folder.path() / "plain"));
  CHECK(fields(result_of(lost)["best"]) == std::vector<std::string>{"step", "validation"});
  CHECK(!result_of(lost).contains("test_best"));
  // The best one is where the run was that goes on elsewhere.
  must_train(folder.path(),
             flags + Flags{"--output", "short", "--resume", "sharded/checkpoints/step-00000024"});
  CHECK(result_of(folder.path() / "short")["best"]["checkpoint"] ==
        (fs::weakly_canonical(folder.path()) / "sharded" /
         first["best"]["checkpoint"].get<std::string>())
            .string());
}

TEST_CASE(
    "of a best step without a checkpoint the figure is told, of averages that they are some") {
  const TemporaryFolder folder;
  const Flags flags = job(folder.path()) + set("checkpoint.best=none trainer.patience=9");
  const Ended end = must_train(folder.path(), flags + Flags{"--output", "run"});
  const std::int64_t best = best_step_of(folder.path() / "run");
  CHECK_THAT(end.out,
             ContainsSubstring("\nbest step " + std::to_string(best) + ": validation ") &&
                 ContainsSubstring("; no checkpoint has its weights: checkpoint.best keeps them, "
                                   "and measures them on the test set\n"));
  CHECK(result_of(folder.path() / "run")["best"]["step"] == best);
  CHECK(!result_of(folder.path() / "run").contains("test_best"));
  const Ended plain =
      must_train(folder.path(), flags + set("trainer.patience=null trainer.ema_decay=0.9") +
                                    Flags{"--output", "averages"});
  CHECK_THAT(plain.out, ContainsSubstring("\nstep 24, averaged weights: test loss ") &&
                            !ContainsSubstring("best step"));
  CHECK(result_of(folder.path() / "averages")["weights"] == "averaged");
  CHECK(metrics_of(folder.path() / "averages").back()["weights"] == "averaged");
}

TEST_CASE("--stop-after says where it leaves no checkpoint, and what numbers it takes") {
  const TemporaryFolder folder;
  const Flags flags = job(folder.path()) + set("checkpoint=none");
  const Ended end = must_train(folder.path(), flags + Flags{"--stop-after", "1"});
  CHECK_THAT(end.out, ContainsSubstring("\nstopped after step 1 of 24, without a checkpoint: "
                                        "checkpoint.save is none\n"));
  check_refused(folder.path(), flags + Flags{"--stop-after", "0"},
                "--stop-after: must be an integer from 1 to 1000000000, is 0");
}
