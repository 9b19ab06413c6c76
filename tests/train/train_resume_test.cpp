#include <csignal>
#include <filesystem>
#include <string>

#include "framework/base/text.h"
#include "tests/catch.h"
#include "tests/support/ended.h"
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

// A run of a small perceptron on four replicas, with much that a checkpoint must hold.
Flags job(const std::string& variant, std::int64_t steps) {
  const Flags flags =
      Flags{"--config", config_file("fashion_mnist_mlp.yaml"), "--replicas", "4"} +
      set(lockstep::str("model.hidden=[33,17] data.batch_size=8 trainer.log_every=3 "
                        "trainer.eval_every=100 checkpoint.every=4 "
                        "checkpoint.best=loss data.validation=0.01 trainer.steps=",
                        steps));
  if (variant == "compression") {
    return flags + set("parallel.compression=bf16 schedule.name=cosine schedule.warmup_steps=20 "
                       "optimizer.name=adamw");
  }
  return flags + set("trainer.accumulate=2 trainer.clip_norm=0.5");
}

}  // namespace

TEST_CASE("a signal in the midst of a step has the run end with that step's checkpoint") {
  const TemporaryFolder folder;
  folder.write("stop.yaml",
               "model: {name: faulty, fault: stop}\n"
               "data: {name: faulty, batch_size: 4}\n"
               "parallel: {replicas: 2}\n"
               "trainer: {steps: 8}\n");
  const Ended end = own_train(folder.path(), {"--config", "stop.yaml", "--output", "run"});
  check_status(end, 143);
  CHECK_THAT(end.out, ContainsSubstring("stopped after step 3 of 8, with a checkpoint: "));
}

TEST_CASE("Ctrl-C and SIGTERM end a run at a step, with a checkpoint from which it goes on") {
  const TemporaryFolder folder;
  constexpr std::int64_t kSteps = 200;
  must_train(folder.path(), job("accumulation", kSteps) + Flags{"--output", "whole", "--quiet"});
  for (const std::string launch : {"processes", "threads"}) {
    for (const int signal : {SIGINT, SIGTERM}) {
      const std::string name = launch + std::to_string(signal);
      const fs::path run = folder.path() / name;
      const Flags flags = job("accumulation", kSteps) +
                          Flags{"--output", name, "--resume", "auto", "--launch", launch} +
                          set("checkpoint.every=0 parallel.workers=3");
      ChildProgram program(train_command(flags), folder.path());
      REQUIRE(eventually([&] { return has_logged(run); }));
      REQUIRE(::kill(program.pid(), signal) == 0);
      const Ended end = program.wait();
      check_status(end, 128 + signal);
      CHECK_THAT(end.out, ContainsSubstring("with a checkpoint: --output " + name +
                                            " --resume auto goes on"));
      CHECK(!fs::exists(run / "result.json"));
      const Ended listed = must_train(folder.path(), {"runs", name, "--format", "csv"});
      CHECK_THAT(listed.out, ContainsSubstring(str(",", name, ",stopped,")));
      // As the message says it, with the config that the folder has.
      const Ended again = must_train(folder.path(), Flags{"--output", name, "--resume", "auto"});
      CHECK_THAT(again.out, ContainsSubstring("going on after step "));
      check_same(run, folder.path() / "whole");
    }
  }
  const Json compared = Json::parse(
      must_train(folder.path(), Flags{"compare", "--format", "json", "whole",
                                      str("processes", SIGINT), str("threads", SIGTERM)})
          .out);
  CHECK(compared["same_figures"] == true);
  CHECK(compared["same_parameters"] == true);
  CHECK(!compared["runs"][0].contains("resumes"));
  for (const int run : {1, 2}) CHECK(compared["runs"][run]["resumes"] == 1);
  for (const auto& [key, values] : compared["differences"].items()) {
    CHECK((key == "checkpoint.every" || key.starts_with("parallel.")));
  }
  // A folder that holds a run is not taken for that of another checkpoint.
  CHECK_THAT(refusal(folder.path() / "whole", {"--resume", "elsewhere"}),
             ContainsSubstring("--config FILE is needed: --resume elsewhere finds no checkpoint"));
}

TEST_CASE("a changed key is named with both values, and refused where it changes the result") {
  const TemporaryFolder folder;
  const Flags flags = job("compression", 24) + Flags{"--output", "run", "--resume", "auto"};
  const auto contains = [](const std::string& part) { return ContainsSubstring(part); };
  must_train(folder.path(), flags);
  CHECK_THAT(refusal(folder.path(), flags + set("optimizer.lr=0.5 trainer.seed=7")),
             contains("optimizer.lr was 0.001, is 0.5, trainer.seed was 0, is 7. "
                      "That changes what is computed: begin a new run, or add "
                      "--resume-with-changes"));
  CHECK_THAT(refusal(folder.path(), flags + set("parallel.threads_per_replica=7")),
             contains("parallel.threads_per_replica was "));
  const Ended longer =
      must_train(folder.path(), flags +
                                    set("trainer.steps=30 data.batch_size=16 "
                                        "parallel.replicas=3 optimizer.lr=0.0005") +
                                    Flags{"--resume-with-changes"});
  CHECK_THAT(longer.out, contains("going on after step 24 (768 samples) from ") &&
                             contains("  parallel.replicas was 4, is 3\n") &&
                             contains("  data.batch_size was 8, is 16\n"));
  // Six steps of 32 samples are left: four of 48.
  const Json result = result_of(folder.path() / "run");
  CHECK(result["steps"] == 28);
  CHECK(metrics_of(folder.path() / "run").back()["samples"] == 768 + 4 * 48);
  REQUIRE(result["waived"].size() == 3);
  CHECK_THAT(result["waived"][0].get<std::string>(), contains("parallel.compression rounds"));
  CHECK_THAT(result["waived"][1].get<std::string>(), contains("among 3"));
  CHECK_THAT(result["waived"][2].get<std::string>(), contains("optimizer.lr was 0.001, is 0.0005"));
}

TEST_CASE("a run goes on from an earlier checkpoint, and past damaged ones with a line for each") {
  const TemporaryFolder folder;
  const fs::path run = folder.path() / "run";
  const Flags run_flags = job("accumulation", 24) + set("checkpoint.keep=9");
  const Flags flags = run_flags + Flags{"--output", "run"};
  must_train(folder.path(), flags);
  const std::string whole = digest_of(run);
  const auto metrics = metrics_of(run);
  fs::resize_file(run / "checkpoints/step-00000024/manifest.json", 100);
  fs::remove(run / "checkpoints/step-00000020/shard-00002-of-00004.safetensors");
  const Ended skipped = must_train(folder.path(), flags + Flags{"--resume", "auto"});
  CHECK_THAT(skipped.err, ContainsSubstring("skipping a checkpoint: ") &&
                              ContainsSubstring("step-00000024/manifest.json") &&
                              ContainsSubstring("shard-00002-of-00004.safetensors"));
  CHECK_THAT(skipped.out, ContainsSubstring("going on after step 16 "));
  CHECK(digest_of(run) == whole);
  CHECK(metrics_of(run) == metrics);
  // Without --output it goes on in the folder of its run.
  const Ended earlier = must_train(
      folder.path(), job("accumulation", 24) + Flags{"--resume", "run/checkpoints/step-00000008"});
  CHECK_THAT(earlier.err, ContainsSubstring(" of steps after 8: the run makes new ones"));
  CHECK(metrics_of(run) == metrics);
  CHECK(fs::exists(run / "checkpoints/aside-step-00000012"));
  const Ended through = train(folder.path(), {"--resume", "run/checkpoints/latest/"});
  CHECK(through.status == 0);
  CHECK_THAT(through.out, ContainsSubstring("from run/checkpoints/step-00000024") &&
                              ContainsSubstring("there is no step left to train"));
  must_train(folder.path(), job("accumulation", 8) + Flags{"--output", "other"});
  CHECK_THAT(refusal(folder.path(), flags + Flags{"--resume", "other/checkpoints/latest"}),
             ContainsSubstring("output folder run holds a run already, of which "
                               "other/checkpoints/latest is no checkpoint"));
  (void)refusal(folder.path(), flags + Flags{"--resume", "run/checkpoints/none"});
}

TEST_CASE("without --config a run goes on with the config of the checkpoint that it goes on from") {
  const TemporaryFolder folder;
  const fs::path run = folder.path() / "run";
  const Flags flags = job("accumulation", 24) + set("checkpoint.keep=9");
  const Flags go_on{"--output", "run", "--resume", "auto"};
  must_train(folder.path(), flags + Flags{"--output", "whole"});
  must_train(folder.path(), flags + Flags{"--output", "run", "--stop-after", "12"});
  // A start with changes that saves nothing.
  must_train(folder.path(), flags + go_on + set("optimizer.lr=0.5 checkpoint.save=none") +
                                Flags{"--resume-with-changes", "--stop-after", "13"});
  CHECK_THAT(read_text(run / "config.yaml"), ContainsSubstring("lr: 0.5"));
  const Ended printed = must_train(folder.path(), go_on + Flags{"--print-config"});
  CHECK_THAT(printed.out, ContainsSubstring("lr: 0.001"));
  must_train(folder.path(), go_on);
  CHECK(digest_of(run) == digest_of(folder.path() / "whole"));
  // From an earlier step, and from a copy that lies in no run.
  must_train(folder.path(), {"--resume", "run/checkpoints/step-00000008"});
  CHECK(digest_of(run) == digest_of(folder.path() / "whole"));
  fs::copy(run / "checkpoints/step-00000008", folder.path() / "copy", fs::copy_options::recursive);
  must_train(folder.path(), {"--resume", "copy", "--output", "elsewhere"});
  CHECK(digest_of(folder.path() / "elsewhere") == digest_of(run));
}

TEST_CASE("each run that goes on says which number of math threads stays") {
  const TemporaryFolder folder;
  must_train(folder.path(),
             job("accumulation", 24) + Flags{"--output", "run", "--stop-after", "4"});
  std::int64_t threads = 0;
  rewrite_manifest(folder.path() / "run/checkpoints/latest", [&](storage::Manifest& manifest) {
    threads = ++manifest.counts.at("threads_per_replica");
  });
  for (const std::string n : {"8", "12"}) {
    const Ended end =
        must_train(folder.path(), {"--output", "run", "--resume", "auto", "--stop-after", n});
    CHECK_THAT(end.out, ContainsSubstring(lockstep::str("parallel.threads_per_replica stays ",
                                                        threads, ", as when the run began")));
  }
}

TEST_CASE("without checkpoints nothing is left, and --resume auto begins anew") {
  const TemporaryFolder folder;
  const Flags flags = job("accumulation", 8) + set("checkpoint.save=none") +
                      Flags{"--output", "run", "--resume", "auto"};
  for (int round = 0; round < 2; ++round) {
    const Ended end = must_train(folder.path(), flags);
    CHECK(!fs::exists(folder.path() / "run/checkpoints"));
    CHECK_THAT(end.err, ContainsSubstring("the run begins at its first step"));
    CHECK(metrics_of(folder.path() / "run").size() == 5);
  }
}

TEST_CASE("a job that has lost a replica starts again by itself, and counts that") {
  const TemporaryFolder folder;
  constexpr std::int64_t kSteps = 200;
  must_train(folder.path(), job("accumulation", kSteps) + Flags{"--output", "whole"});
  ChildProgram program(
      train_command(job("accumulation", kSteps) + Flags{"--output", "run", "--max-restarts", "2"}),
      folder.path());
  REQUIRE(eventually([&] { return fs::exists(folder.path() / "run/checkpoints/latest"); }));
  REQUIRE(::kill(children_of(program.pid()).at(2), SIGKILL) == 0);
  const Ended end = program.wait();
  require_status(end, 0);
  CHECK_THAT(end.err, ContainsSubstring("starting again in 1 s (restart 1 of 2)"));
  CHECK(result_of(folder.path() / "run")["restarts"] == 1);
  check_same(folder.path() / "run", folder.path() / "whole");
}

TEST_CASE("a run that goes on elsewhere starts again from there, not from its beginning") {
  const TemporaryFolder folder;
  constexpr std::int64_t kSteps = 300;
  const Flags flags = job("accumulation", kSteps);
  must_train(folder.path(), flags + set("checkpoint.keep=100") + Flags{"--output", "whole"});
  ChildProgram program(train_command(flags + set("checkpoint.every=0") +
                                     Flags{"--resume", "whole/checkpoints/step-00000100",
                                           "--output", "run", "--max-restarts", "1"}),
                       folder.path());
  REQUIRE(eventually([&] { return !children_of(program.pid()).empty(); }));
  REQUIRE(eventually([&] { return fs::exists(folder.path() / "run/metrics.jsonl"); }));
  REQUIRE(::kill(children_of(program.pid()).front(), SIGKILL) == 0);
  require_status(program.wait(), 0);
  CHECK(metrics_of(folder.path() / "run").front()["step"] == 102);
  const Json result = result_of(folder.path() / "run");
  CHECK(result["restarts"] == 1);
  CHECK(result["parameters_sha256"] == digest_of(folder.path() / "whole"));
  // The last checkpoint, even of a run that had no step left.
  check_status(train(folder.path(),
                     flags + Flags{"--resume", "whole/checkpoints/latest", "--output", "copy"}),
               0);
  CHECK(fs::exists(folder.path() / "copy/checkpoints/latest/manifest.json"));
}

TEST_CASE("what a kill has left of an old checkpoint goes when the run goes on, also at its end") {
  const TemporaryFolder folder;
  const Flags flags{"--config", config_file("pmean_linear.yaml"), "--output", "run", "--resume",
                    "auto"};
  must_train(folder.path(), flags);
  const fs::path checkpoints = folder.path() / "run/checkpoints";
  const std::ptrdiff_t before = entries(checkpoints);
  fs::create_directories(checkpoints / ".step-00000000.old.tmp/shard");
  must_train(folder.path(), flags + Flags{"--dry-run"});
  CHECK(has_hidden(checkpoints));
  must_train(folder.path(), flags);
  CHECK(entries(checkpoints) == before);
}

TEST_CASE("the best checkpoint is the one with the best evaluation, also after kills") {
  const TemporaryFolder folder;
  const fs::path run = folder.path() / "run";
  const Flags flags = job("compression", 120) +
                      set("trainer.eval_every=10 trainer.log_every=1000") +
                      Flags{"--output", "run", "--resume", "auto"};
  for (int round = 0; round < 2; ++round) {
    ChildProgram program(training(folder.path(), flags));
    (void)eventually([&] { return fs::exists(run / "checkpoints/best"); });
    (void)::kill(-program.pid(), SIGKILL);
    (void)program.wait();
  }
  must_train(folder.path(), flags);
  std::int64_t best = 0;
  double least = 1e9;
  for (const Json& line : metrics_of(run)) {
    if (!line.contains("validation_loss") || line["validation_loss"] >= least) continue;
    least = line["validation_loss"];
    best = line["step"];
  }
  CHECK(read_json(run / "checkpoints/best/manifest.json")["step"] == best);
}

TEST_CASE("workers that are train started again share its run, also after a restart") {
  const TemporaryFolder folder;
  constexpr std::int64_t kSteps = 200;
  const Flags flags = job("accumulation", kSteps);
  must_train(folder.path(), flags + Flags{"--output", "whole"});
  const auto preloaded = [&](const Flags& all) {
    return Flags{"/usr/bin/env", "LD_PRELOAD=" SECOND_THREAD} + train_command(all);
  };
  ChildProgram program(preloaded(flags + Flags{"--output", "run", "--max-restarts", "1"}),
                       folder.path());
  REQUIRE(eventually([&] { return fs::exists(folder.path() / "run/checkpoints/latest"); }));
  REQUIRE(::kill(children_of(program.pid()).at(1), SIGKILL) == 0);
  const Ended end = program.wait();
  require_status(end, 0);
  CHECK_THAT(end.err, ContainsSubstring("has several threads and can't be forked"));
  CHECK(result_of(folder.path() / "run")["restarts"] == 1);
  check_same(folder.path() / "run", folder.path() / "whole");
  // A folder under runs/ of its own, once.
  require_status(run_program(preloaded(job("accumulation", 4)), folder.path()), 0);
  CHECK(entries(folder.path() / "runs") == 1);
}
