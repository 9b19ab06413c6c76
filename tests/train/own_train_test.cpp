#include <algorithm>
#include <filesystem>
#include <string>

#include <nlohmann/json.hpp>

#include "framework/base/text.h"
#include "tests/catch.h"
#include "tests/support/ended.h"
#include "tests/support/files.h"
#include "tests/support/programs.h"
#include "tests/train/train_in_fork.h"
#include "tests/train/train_program.h"

using namespace lockstep;
using namespace lockstep::testing;
namespace fs = std::filesystem;

namespace {

Ended own_train(const TemporaryFolder& folder, const Flags& flags, const Flags& environment = {}) {
  return testing::own_train(folder.path(), flags, environment);
}

void check_refused(const TemporaryFolder& folder, const Flags& flags, const std::string& message) {
  testing::check_refused(
      folder.path(), flags, message,
      [&](const auto& /*its path*/, const Flags& given) { return own_train(folder, given); });
}

}  // namespace

TEST_CASE("a program of one's own has train's commands for its models and data") {
  const TemporaryFolder folder;
  CHECK_THAT(own_train(folder, {"list", "models"}).out,
             ContainsSubstring("\ngpt     GPT-2: a ") &&
                 ContainsSubstring("\nzero    a layer that starts at 0\n"));
  CHECK_THAT(own_train(folder, {"list", "datasets"}).out,
             ContainsSubstring("\nalphabet  ") && ContainsSubstring("  its letters in order\n"));
  CHECK_THAT(own_train(folder, {"keys", "zero"}).out,
             ContainsSubstring("model.init_from_strict: ") && !ContainsSubstring("model.hidden"));
  CHECK(own_train(folder, {"keys", "zerro"}).status == 2);
  CHECK(own_train(folder, {"keys", "Riddle"}).status == 0);

  folder.write("parity.yaml", "model: {name: zero}\ndata: {name: parity}\n");
  const Ended summary = own_train(folder, {"summary", "--config", "parity.yaml"});
  check_status(summary, 0);
  CHECK(summary.err.empty());
  CHECK_THAT(summary.out, Catch::Matchers::StartsWith("data: train ") &&
                              ContainsSubstring("\ndata: classification, 2 classes: ") &&
                              ContainsSubstring(" an epoch, of ") &&
                              ContainsSubstring("(the model)  Zero           2      4  (1, 2)\n") &&
                              ContainsSubstring("\nParameters: 2;") &&
                              ContainsSubstring("\n2 parameters, 1 replica, ZeRO stage ") &&
                              ContainsSubstring("come on top.\n"));
  CHECK_THAT(
      own_train(folder, {"summary", "--config", "parity.yaml", "--set", "parallel.replicas=3"}).out,
      ContainsSubstring("\n2 parameters, 3 replicas, "));
  check_refused(folder, {"summary"}, "--config FILE is needed; see own_train summary --help");

  folder.write("waits.yaml",
               "model: {name: waits, layers: 2, forward_ms: 4, backward_ms: 8}\n"
               "data: {name: synthetic, samples: 256, batch_size: 2}\n");
  const Ended plan = own_train(folder, {"plan", "--config", "waits.yaml", "--hosts", "1,2,64",
                                        "--link", "1", "--format", "json", "--to", "plan.svg"});
  check_status(plan, 0);
  CHECK(plan.err.empty());
  const auto planned = nlohmann::json::parse(plan.out);
  CHECK(planned["measured"]["forward_s"] >= 0.004);
  CHECK(planned["measured"]["backward_s"] >= 0.008);
  REQUIRE(planned["jobs"].size() == 3 * 4);
  for (const auto& job : planned["jobs"]) {
    INFO(job);
    CHECK(job["step_s"] >= 0.012);
    CHECK((job["exposed_s"] > 0) == (job["hosts"] > 1));
    CHECK(job["steps"] == 128 / job["hosts"].get<int>());
  }
  CHECK_THAT(read_text(folder.path("plan.svg")), Catch::Matchers::StartsWith("<svg "));
  CHECK(own_train(folder, {"summary", "--config", "none.yaml"}).status == 2);

  require_status(run_program({OWN_TRAIN_BINARY, "--config", "parity.yaml", "--replicas", "2",
                              "--set", "optimizer.lr=1e-30", "--output", "run", "--quiet"},
                             folder.path()),
                 0);
  const Ended predicted =
      own_train(folder, {"predict", "--checkpoint", "run/checkpoints/latest", "--split=train"});
  CHECK(predicted.err.empty());
  CHECK_THAT(
      predicted.out,
      ContainsSubstring(
          "index,prediction,prediction_name,score,target,target_name\n0,0,\"even, or 0\",") &&
          ContainsSubstring("\n1,1,odd,"));
}

TEST_CASE("a program of one's own calls itself by its own name in help and messages") {
  const TemporaryFolder folder;
  for (const Flags& flags :
       {Flags{"--help"}, {"eval", "--help"}, {"list", "--help"}, {"predict", "--help"}}) {
    const std::string help = own_train(folder, flags).out;
    INFO(help);
    const std::string command = flags.size() == 1 ? "[run]" : flags.front();
    CHECK_THAT(help, ContainsSubstring("\nUsage:\n  own_train " + command + " "));
    CHECK_THAT(help, !ContainsSubstring(" train --") && !ContainsSubstring(" train keys"));
  }
  check_refused(folder, {}, "--config FILE is needed; see own_train --help");
  check_refused(
      folder, {"export"},
      "--checkpoint DIR and --to FILE.safetensors are needed; see own_train export --help");
}

TEST_CASE("what a callback prints is shown of replica 0, or of all replicas by parallel.prints") {
  const TemporaryFolder folder;
  folder.write("told.yaml", "model: {name: zero}\ndata: {name: parity}\ntrainer: {steps: 4}\n");
  const auto told = [&](const Flags& flags) {
    const Ended end =
        own_train(folder, Flags{"--config", "told.yaml", "--replicas", "2", "--quiet"} + flags,
                  {"TELL_STEPS=1"});
    check_status(end, 0);
    Flags lines = lines_of(end.out);
    std::ranges::sort(lines);
    return lines;
  };
  const auto steps = [](const std::string& before, const std::string& replica) {
    return Flags{before + "step 1 on replica " + replica,
                 before + "step 2 on replica " + replica + " with its loss",
                 before + "step 3 on replica " + replica,
                 before + "step 4 on replica " + replica + " with its loss"};
  };
  const Flags all = set("parallel.prints=all");
  CHECK(told({}) == steps("", "0"));
  CHECK(told(all) == steps("[replica 1] ", "1") + steps("", "0"));
  Flags both = steps("", "0") + steps("", "1");
  std::ranges::sort(both);
  for (const Flags& placement : {Flags{"--workers", "1"}, {"--launch", "threads"}}) {
    CHECK(told(placement) == both);
  }
}

TEST_CASE("a name that is registered twice ends the program as other wrong input does") {
  const TemporaryFolder folder;
  const Ended end =
      run_program({"/usr/bin/env", "REGISTER_TWICE=1", OWN_TRAIN_BINARY, "list"}, folder.path());
  check_status(end, 2);
  CHECK(end.err == "lockstep: error: there is a model 'faulty' already\n");
  CHECK(end.out.empty());
}

TEST_CASE("train says in a line that a checkpoint is of a program with parts of its own") {
  const TemporaryFolder folder;
  folder.write("own.yaml",
               "model: {name: zero}\ndata: {name: noted}\nloss: {name: quantile, level: 0.3}\n"
               "trainer: {steps: 1, metrics: [bias, r2]}\n");
  require_status(own_train(folder, {"--config", "own.yaml", "--output", "run", "--quiet"}), 0);
  const std::string checkpoint = "run/checkpoints/latest";
  for (const Flags& flags : {Flags{"eval", "--checkpoint", checkpoint},
                             {"predict", "--checkpoint", checkpoint},
                             {"--resume", checkpoint, "--output", "other"},
                             {"--resume", "auto", "--output", "run"}}) {
    const Ended end = train(folder.path(), flags);
    check_status(end, 2);
    INFO(end.err);
    CHECK(lines_of(end.err).size() == 1);
    CHECK_THAT(end.err,
               ContainsSubstring("/checkpoints/step-00000001 is of a program that has parts of its "
                                 "own: model 'zero', data 'noted', loss 'quantile', metric 'bias'; "
                                 "this program lacks them, and that one has all of train's "
                                 "commands\n"));
  }
  CHECK(train(folder.path(), {"inspect", "run"}).status == 0);
  CHECK(own_train(folder, {"eval", "--checkpoint", checkpoint}).status == 0);
}

TEST_CASE("a loss of one's own is trained by, and a metric of one's own measured") {
  const TemporaryFolder folder;
  CHECK_THAT(own_train(folder, {"list", "losses"}).out,
             ContainsSubstring("\nquantile            of values, whose quantile is learnt\n"));
  CHECK_THAT(own_train(folder, {"list", "metrics"}).out,
             ContainsSubstring("\nbias  ") &&
                 ContainsSubstring("  the outputs less the targets, in the "));
  CHECK_THAT(own_train(folder, {"keys", "quantile"}).out, ContainsSubstring("loss.level: the "));

  folder.write("table.csv", "x,y\n1,1\n2,-2\n3,3\n4,4\n");
  folder.write("quantile.yaml",
               "model: {name: zero}\n"
               "data: {name: csv, file: table.csv, test_file: table.csv, target: y,\n"
               "       normalize: false, batch_size: 2, drop_last: false}\n"
               "loss: {name: quantile, level: 0.75}\n"
               "optimizer: {name: sgd, lr: 1}\n"
               "trainer: {steps: 1, metrics: [bias]}\n");
  const Flags config{"--config", "quantile.yaml"};
  // One step with all rows, on replicas of which the last may have none.
  for (const std::string replicas : {"2", "3"}) {
    INFO(replicas << " replicas");
    require_status(own_train(folder, config + Flags{"--replicas", replicas, "--quiet", "--output",
                                                    "run" + replicas}),
                   0);
    // Outputs are 0 and gradients -0.75, of the second row 0.25; all is exact in float32.
    const auto result = result_of(folder.path() / ("run" + replicas));
    CHECK(result["parameters"]["weight"] == 1.375);
    CHECK(result["eval"]["loss"] == 0.25 * 7.75 / 4);
    CHECK(result["eval"]["bias"] == 7.75 / 4);
  }

  const auto refusal = [&](const std::string& key) {
    const Ended end = own_train(folder, config + set(key));
    CHECK(end.status == 2);
    return end.err;
  };
  CHECK_THAT(refusal("loss.levle=0.5"),
             ContainsSubstring("--set loss.levle=0.5: unknown key 'levle' in loss (did you mean "
                               "'level'?)"));
  CHECK_THAT(refusal("loss.level=2"), ContainsSubstring("loss.level: must be from 0 to 1, is 2"));
  CHECK_THAT(refusal("loss.name=quantil"), ContainsSubstring("'quantil'"));
  CHECK_THAT(refusal("trainer.metrics=[bais]"),
             ContainsSubstring("there is no metric 'bais' (did you mean 'bias'?)"));
}

TEST_CASE("samples without targets are for predictions alone, whatever their source allows") {
  const TemporaryFolder folder;
  folder.write("job.yaml", "model: {name: zero}\ndata: {name: parity}\n");
  const Flags riddle{"--set", "data.name=Riddle"};
  const std::string refusal = "Riddle: its test set has no targets";
  check_refused(folder, Flags{"--config", "job.yaml", "--output", "run"} + riddle, refusal);
  CHECK(!fs::exists(folder.path() / "run"));
  REQUIRE(own_train(folder, {"--config", "job.yaml", "--output", "run", "--quiet"}).status == 0);
  const Flags checkpoint{"--checkpoint", "run/checkpoints/latest"};
  check_refused(folder, Flags{"eval"} + checkpoint + riddle, refusal);
  const Ended predicted = own_train(folder, Flags{"predict", "--split=test"} + checkpoint + riddle);
  CHECK(predicted.status == 0);
  CHECK(predicted.err.empty());
  CHECK(predicted.out.starts_with("index,prediction,prediction_name,score\n0,0,"));
}

TEST_CASE("predictions are of the set that --set changes, whatever its keys are called") {
  const TemporaryFolder folder;
  folder.write("job.yaml", "model: {name: zero}\ndata: {name: many}\n");
  REQUIRE(own_train(folder, {"--config", "job.yaml", "--output", "run", "--quiet"}).status == 0);
  const Flags predict{"predict", "--checkpoint", "run/checkpoints/latest"};
  const auto check = [&](const std::string& keys, const std::string& name, std::size_t samples) {
    const Ended end = own_train(folder, predict + (keys.empty() ? Flags{} : set(keys)));
    INFO(keys);
    CHECK(end.status == 0);
    CHECK(end.err == str("lockstep: predicts the ", name, " set: ", samples, " samples\n"));
    CHECK(lines_of(end.out).size() == samples + 1);
  };
  check("", "test", 4);
  check("data.corpus=8", "training", 8);
  check("data.held_out=5", "test", 5);
  check("data.file=3", "test", 7);
  check("data.corpus=8 data.held_out=5", "test", 5);
  check("data.batch_size=2", "test", 4);  // both are as they were
  check("data.held_out=0", "training", 6);
  const Ended named = own_train(folder, predict + set("data.corpus=8") + Flags{"--split", "test"});
  CHECK(named.err.empty());
  CHECK(lines_of(named.out).size() == 5);

  REQUIRE(own_train(folder, Flags{"--config", "job.yaml", "--output", "untested", "--quiet"} +
                                set("data.held_out=0"))
              .status == 0);
  const Flags untested{"predict", "--checkpoint", "untested/checkpoints/latest"};
  check_refused(folder, untested,
                "the data set many has no test set; the run had train: name one with --split");
  check_refused(folder, untested + Flags{"--split", "test"},
                "--split test: the data set many has no test set; the run had train");
}

TEST_CASE("train sample continues what the model has learnt, the same for the same seed") {
  const TemporaryFolder folder;
  folder.write("alphabet.yaml",
               "model: {name: gpt, layers: 1, heads: 2, width: 32}\n"
               "data: {name: alphabet, batch_size: 13}\n"
               "optimizer: {name: adam, lr: 0.01}\n"
               "parallel: {replicas: 2, threads_per_replica: 1}\n"
               "trainer: {steps: 60}\n");
  require_status(own_train(folder, {"--config", "alphabet.yaml", "--output", "run", "--quiet"}), 0);
  const Flags sample{"sample", "--checkpoint", "run/checkpoints/latest"};
  const auto text = [&](const Flags& flags) {
    const Ended end = own_train(folder, sample + flags);
    CHECK(end.status == 0);
    CHECK(end.err.empty());
    return end.out;
  };
  CHECK(text({"--prompt", "wxy", "--bytes", "30", "--temperature", "0"}) ==
        "wxyzabcdefghijklmnopqrstuvwxyzabc\n");
  const std::string hot = text({"--prompt", "a", "--bytes=50", "--temperature=3"});
  CHECK(hot.size() == 52);
  CHECK(text({"--prompt", "a", "--bytes=50", "--temperature=3", "--seed", "0"}) == hot);
  CHECK(text({"--prompt", "a", "--bytes=50", "--temperature=3", "--seed=1"}) != hot);
  CHECK(text({"--prompt", "a", "--bytes=20", "--temperature=3", "--top-k=1"}) ==
        "abcdefghijklmnopqrstu\n");

  check_refused(folder, {"sample", "--prompt", "a"},
                "--checkpoint DIR is needed; see own_train sample --help");
  check_refused(folder, sample, "--prompt TEXT is needed; see own_train sample --help");
  check_refused(folder, sample + Flags{"--prompt", "a", "--length", "50"},
                "unknown flag --length (did you mean '--bytes 50'?); see own_train sample --help");
  check_refused(folder, sample + Flags{"--prompt", ""},
                "--prompt: is empty; the model continues one byte at least");
  check_refused(folder, sample + Flags{"--prompt", "a", "--top-k", "257"},
                "--top-k: must be from 1 to the 256 bytes that there are, is 257");
  check_refused(folder, sample + Flags{"--prompt", "a", "--bytes", "many"},
                "--bytes: expected an integer, found 'many'");
  check_refused(folder, sample + Flags{"--prompt", "a", "--seed=-1"},
                "--seed: expected an integer, at least 0, found '-1'");
  check_refused(folder, {"predict", "--checkpoint", "run/checkpoints/latest"},
                "the data are tokens, each with the one that follows: own_train sample continues a "
                "text");
}

TEST_CASE("a SIGTERM that comes while the program ends is no crash") {
  const TemporaryFolder folder;
  const Ended end =
      run_program({"/usr/bin/env", "RAISE_AT_EXIT=1", OWN_TRAIN_BINARY, "list"}, folder.path());
  CHECK(end.status == 143);
  CHECK(!end.by_signal);
  CHECK(end.err == "lockstep: error: stopped by SIGTERM\n");
}

TEST_CASE("the fingerprints of data are taken once for a run, by the process that starts it") {
  const TemporaryFolder folder;
  folder.write("noted.yaml",
               "model: {name: zero}\n"
               "data: {name: noted, validation: 0.5}\n"
               "parallel: {replicas: 3, workers: 2}\n"
               "checkpoint: {every: 1}\n");
  // Returns who has taken them.
  const auto takers = [&](bool has_threads, const Flags& flags, int status) {
    fs::remove(folder.path() / "fingerprints");
    const Flags all = Flags{"--config", "noted.yaml"} + flags;
    const Flags program{"/usr/bin/env", "LD_PRELOAD=" SECOND_THREAD, OWN_TRAIN_BINARY};
    ChildProgram child = has_threads ? ChildProgram(program + all, folder.path())
                                     : ChildProgram(own_training(folder.path(), all));
    const Ended end = child.wait();
    check_status(end, status);
    CHECK((end.err.find("can't be forked") != std::string::npos) == has_threads);
    if (!fs::exists(folder.path() / "fingerprints")) return Flags{};
    Flags who = lines_of(read_text(folder.path() / "fingerprints"));
    for (std::string& pid : who) pid = pid == std::to_string(child.pid()) ? "launcher" : "other";
    return who;
  };
  const Flags once{"launcher"};
  const Flags longer = set("trainer.epochs=2") + Flags{"--resume", "auto", "--output"};
  CHECK(takers(false, {"--output", "run"}, 0) == once);
  CHECK(takers(false, longer + Flags{"run"}, 0) == once);
  CHECK(takers(false, {"--output", "threads", "--launch", "threads"}, 0) == once);
  // Workers that are the program started again have them from their launcher.
  CHECK(takers(true, {"--output", "again"}, 0) == once);
  CHECK(takers(true, longer + Flags{"again"}, 0) == once);
  // Where nothing would say them they are not taken, nor for a job that can't run.
  CHECK(takers(false, {"--dry-run"}, 0).empty());
  CHECK(takers(false, {"--output", "none", "--set", "checkpoint=none"}, 0).empty());
  CHECK(takers(false, {"--output", "refused", "--set", "trainer.freeze=[x]"}, 2).empty());
}

TEST_CASE("a model of LibTorch's modules with dropout has one digest, wherever it trains") {
  const TemporaryFolder folder;
  folder.write("ready.yaml",
               "model: {name: ready}\ndata: {name: alphabet, batch_size: 3}\n"
               "optimizer: {name: adam, lr: 0.01}\ntrainer: {steps: 12, accumulate: 2}\n"
               "checkpoint: {every: 4, keep: 9}\nparallel: {threads_per_replica: 1}\n");
  const auto digest = [&](const std::string& run, const Flags& flags) {
    check_status(own_train(folder, Flags{"--config", "ready.yaml", "--output", run, "--quiet"} +
                                       Flags{"--replicas", "3"} + flags),
                 0);
    return digest_of(folder.path() / run);
  };
  const std::string expected = digest("run", {});
  CHECK(digest("threads", {"--launch", "threads"}) == expected);
  CHECK(digest("one_worker", set("parallel.zero_stage=1") + Flags{"--workers", "1"}) == expected);
  CHECK(digest("gloo", set("parallel.zero_stage=3 parallel.backend=gloo")) == expected);
  CHECK(digest("resumed", set("parallel.zero_stage=2") +
                              Flags{"--resume", "run/checkpoints/step-00000004"}) == expected);
  CHECK(digest("other", set("trainer.seed=5")) != expected);
}

TEST_CASE("a model of one's own whose initial values have no key is refused, in every placement") {
  const TemporaryFolder folder;
  folder.write("loose.yaml", "model: {name: loose}\ndata: {name: parity}\n");
  for (const Flags& flags : {Flags{"--replicas", "1"}, Flags{"--replicas", "2"},
                             Flags{"--replicas", "2", "--workers", "1"},
                             Flags{"--replicas", "2", "--launch", "threads"}}) {
    const Ended end = own_train(folder, Flags{"--config", "loose.yaml", "--output", "run"} + flags);
    check_status(end, 2);
    CHECK_THAT(end.err,
               ContainsSubstring("had drawn from LibTorch's process-wide generator, which "
                                 "has no seed: a module that such draws have initialized") &&
                   ContainsSubstring("make it in lockstep::seeded(seed"));
    std::filesystem::remove_all(folder.path() / "run");
  }
  CHECK(own_train(folder, {"summary", "--config", "loose.yaml"}).status == 0);
}
