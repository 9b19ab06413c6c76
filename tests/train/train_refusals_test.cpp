#include <filesystem>

#include "framework/base/text.h"
#include "tests/catch.h"
#include "tests/support/ended.h"
#include "tests/support/files.h"
#include "tests/train/train_in_fork.h"
#include "tests/train/train_program.h"

using namespace lockstep;
using namespace lockstep::testing;

namespace {

struct Refusal {
  Flags flags;
  std::string message;
};

}  // namespace

TEST_CASE("--help and --version print to stdout and do nothing else") {
  const TemporaryFolder folder;
  const Ended help = train(folder.path(), {"--help"});
  CHECK(help.status == 0);
  CHECK(help.err.empty());
  for (const std::string flag :
       {"--config FILE", "--replicas N", "--workers W", "--launch HOW", "--set ", "--output DIR",
        "--print-config", "--quiet", "--help", "--version", "Exit status: 0 done; 2 arguments"}) {
    CHECK_THAT(help.out, ContainsSubstring(flag));
  }
  const Ended keys = train(folder.path(), {"keys"});
  CHECK(keys.status == 0);
  CHECK_THAT(keys.out, ContainsSubstring("optimizer.lr: "));
  CHECK(keys.err.empty());
  const Ended version = train(folder.path(), {"--version"});
  CHECK(version.status == 0);
  CHECK(version.out == "lockstep " LOCKSTEP_VERSION "\n");
  CHECK(version.err.empty());
  CHECK(entries(folder.path()) == 0);
}

TEST_CASE("flags that are not understood are refused") {
  const TemporaryFolder folder;
  const std::string config = config_file("pmean_linear.yaml");
  const std::vector<Refusal> refusals{
      {{}, "--config FILE is needed; see train --help"},
      {{"--output", "none", "--resume", "auto"},
       "--config FILE is needed: --resume auto finds no run that has one; see train --help"},
      {{"--config", config, "--replica", "3"},
       "unknown flag --replica (did you mean '--replicas'?); see train --help"},
      {{"--config", config, "--resume=auto"},
       "--resume auto needs --output DIR, the folder of the run that goes on"},
      {{"--config", config, "--max-restarts", "-1"},
       "--max-restarts: must be an integer from 0 to 1000000, is -1"},
      {{"--config", config, "--launch", "threads", "--max-restarts", "1"},
       "--max-restarts needs parallel.launch processes: a thread that crashes ends the program"},
      {{"--config", config, "stray"}, "'stray' is no flag; see train --help"},
      {{"x.yaml"}, "'x.yaml' is no flag (did you mean '--config x.yaml'?); see train --help"},
      {{"optimizer.lr=1"},
       "'optimizer.lr=1' is no flag (did you mean '--set optimizer.lr=1'?); see train --help"},
      {{"eval", "."}, "'.' is no flag (did you mean '--checkpoint .'?); see train eval --help"},
      {{"summary", "x.yaml"},
       "'x.yaml' is no flag (did you mean '--config x.yaml'?); see train summary --help"},
      {{"--config", config, "--epochs", "3"},
       "unknown flag --epochs (did you mean '--set trainer.epochs=3'?); see train --help"},
      {{"--config"}, "--config lacks its value; see train --help"},
      {{"--config", config, "--output", "--dry-run"},
       "--output lacks its value: --dry-run follows (if that is meant: --output=--dry-run); see "
       "train --help"},
      {{"--config", config, "--dry-run=false"},
       "--dry-run takes no value, but is given 'false'; see train --help"},
      {{"--config", config, "--set", "trainer.steps=5", "--set", "trainer.epochs=2"},
       "--set trainer.epochs=2: trainer.epochs: not together with trainer.steps (--set "
       "trainer.steps=5): keep one of them"},
      {{"--config", config, "--replicas", "0"},
       "--replicas 0: parallel.replicas: must be from 1 to 16384, is 0"},
      {{"--config", config, "--replicas", "1025"},
       "--replicas 1025: parallel.replicas: a host runs at most 1024 of them, and 1025 would run "
       "on "
       "this one"},
      {{"--config", config, "--launch", "thread"},
       "--launch thread: parallel.launch: must be one of processes, threads, is 'thread' (did you "
       "mean 'threads'?)"},
      {{"--config", config, "--set", "optimizer.lr=-1"},
       "--set optimizer.lr=-1: optimizer.lr: must be greater than 0, is -1"},
      {{"--config", config, "--set", "optimizer.lr"},
       "--set optimizer.lr: expected section.key=value, for example optimizer.lr=0.1"},
      {{"--config", config, "--set", "optimizer.lrr=1"},
       "--set optimizer.lrr=1: unknown key 'lrr' in optimizer (did you mean 'lr'?)"},
      {{"--config", config, "--replicas", "0", "--set", "optimizer.lr=-1"},
       "--replicas 0: parallel.replicas: must be from 1 to 16384, is 0\n"
       "--set optimizer.lr=-1: optimizer.lr: must be greater than 0, is -1"},
      {{"--config", config, "--output", ""}, "--output: the folder's name is empty"},
  };
  for (const Refusal& refusal : refusals)
    check_refused(folder.path(), refusal.flags, refusal.message);
}

TEST_CASE("configs and data that cannot be used are refused, with the file and the place") {
  const TemporaryFolder folder;
  write_text(folder.path() / "unknown.yaml",
             "model: {name: linear}\ndata: {name: pmean_example}\noptimizer: {name: sgd, "
             "momentun: 0.9}\n");
  write_text(folder.path() / "wrong.yaml",
             "model: {name: linear, width: 3}\ndata: {name: pmean_example}\ntrainer:\n  steps: 0\n"
             "  seed: x\n");
  write_text(folder.path() / "later.yaml",
             "model: {name: linear}\ndata: {name: pmean_example}\nparallel:\n  elastic_s: 10\n");
  const std::filesystem::path source = "/usr/share/datasets/fashion-mnist";
  const auto cut = folder.path() / "cut";
  std::filesystem::create_directory(cut);
  for (const auto& file : std::filesystem::directory_iterator(source)) {
    std::filesystem::copy(file.path(), cut / file.path().filename());
  }
  std::filesystem::resize_file(cut / "train-labels-idx1-ubyte.gz", 20'000);
  const std::string mlp = config_file("fashion_mnist_mlp.yaml");
  const std::vector<Refusal> refusals{
      {{"--config", "none.yaml", "--output", "run"},
       "cannot read the config none.yaml: No such file or directory"},
      {{"--config", "cut", "--output", "run"},
       "cannot read the config cut: it is a folder, not a file"},
      {{"--config", "/dev/zero", "--output", "run"},
       "cannot read the config /dev/zero: it is a device, not a file"},
      {{"--config", "unknown.yaml", "--output", "run"},
       "unknown.yaml:3:24: unknown key 'momentun' in optimizer (did you mean 'momentum'?)"},
      {{"--config", "wrong.yaml", "--output", "run"},
       "wrong.yaml:1:23: model.width: belongs to model resnet or gpt, not to linear\n"
       "wrong.yaml:4:10: trainer.steps: must be from 1 to 1000000000, is 0\n"
       "wrong.yaml:5:9: trainer.seed: expected an integer, found 'x'"},
      {{"--config", "later.yaml", "--output", "run"},
       "later.yaml:4:3: unknown key 'elastic_s' in parallel…"},
      {{"--config", mlp, "--set", "data.root=nowhere", "--output", "run"},
       "fashion_mnist: there is neither 'nowhere/train-images-idx3-ubyte' nor "
       "'nowhere/train-images-idx3-ubyte.gz'…"},
      {{"--config", mlp, "--set", "data.root=cut", "--output", "run"},
       "data file 'cut/train-labels-idx1-ubyte.gz': it is cut short…"},
      {{"--config", mlp, "--set", "data.root=cut", "--print-config", "--launch", "three"},
       "--launch three: parallel.launch: must be one of processes, threads, is 'three'…"},
  };
  for (const Refusal& refusal : refusals)
    check_refused(folder.path(), refusal.flags, refusal.message);
}

TEST_CASE("jobs that do not suit their data are refused before they start, also in a dry run") {
  const TemporaryFolder folder;
  const auto refuse = [&](std::vector<std::string> flags, const std::string& message) {
    check_refused(folder.path(), flags, message);
    flags.emplace_back("--dry-run");
    check_refused(folder.path(), flags, message);
  };
  const std::string accumulate =
      "trainer.accumulate: times parallel.replicas it must be at most the training set's samples, "
      "of which there are ";
  refuse({"--config", config_file("fashion_mnist_mlp.yaml"), "--replicas", "2", "--set",
          "trainer.accumulate=1000000"},
         "--set trainer.accumulate=1000000: " + accumulate + "60000; is 1000000 times 2");
  refuse({"--config", config_file("pmean_linear.yaml"), "--replicas", "3", "--set",
          "trainer.accumulate=5"},
         "--set trainer.accumulate=5: " + accumulate + "12; is 5 times 3");
  write_text(folder.path() / "warmup.yaml",
             "model: {name: linear}\ndata: {name: pmean_example, batch_size: 2}\n"
             "schedule:\n  name: cosine\n  warmup_steps: 7\ntrainer: {epochs: 3}\n");
  const std::string warmup =
      "schedule.warmup_steps: must be at most the run's 6 steps (trainer.epochs 3 of 2 steps "
      "each), is ";
  for (const std::string replicas : {"1", "3"}) {
    for (const std::string launch : {"processes", "threads"}) {
      refuse({"--config", "warmup.yaml", "--replicas", replicas, "--launch", launch},
             "warmup.yaml:5:3: " + warmup + "7");
    }
  }
  refuse({"--config", "warmup.yaml", "--set", "trainer.accumulate=5"},
         "warmup.yaml:5:3: schedule.warmup_steps: must be at most the run's 3 steps "
         "(trainer.epochs 3 of 1 step each), is 7\n--set trainer.accumulate=5: " +
             accumulate + "4; is 5 times 1");
  refuse({"--config", "warmup.yaml", "--set", "schedule.warmup_steps=8"},
         "--set schedule.warmup_steps=8: " + warmup + "8");
  refuse({"--config", "warmup.yaml", "--set", "trainer.steps=1"},
         "warmup.yaml:5:3: schedule.warmup_steps: must be at most the run's 1 step "
         "(trainer.steps), is 7");
  CHECK(train(folder.path(), {"--config", "warmup.yaml", "--set", "trainer.steps=7", "--dry-run"})
            .status == 0);
  write_text(folder.path() / "groups.yaml",
             "model: {name: mlp, hidden: [8]}\ndata: {name: pmean_example}\noptimizer:\n  groups:\n"
             "    - {pattern: \"*.bias\", weight_decay: 0}\n"
             "    - {lr_scale: 2, pattern: \"norm.*\"}\n");
  refuse({"--config", "groups.yaml"},
         "groups.yaml:6:21: optimizer.groups: no parameter matches the pattern 'norm.*'; the "
         "parameters are …");
  const std::string groups = "optimizer.groups=[{pattern: '*'}, {pattern: '*.bias'}]";
  refuse({"--config", "groups.yaml", "--output", "run", "--set", groups},
         "--set " + groups +
             ": optimizer.groups: earlier groups match all that the pattern '*.bias' does: …");
  CHECK(train(folder.path(), {"--config", config_file("pmean_linear.yaml"), "--replicas", "3",
                              "--set", "trainer.accumulate=4", "--dry-run"})
            .status == 0);
}

TEST_CASE("an output folder that holds a run is refused and left as it is") {
  for (const std::string launch : {"processes", "threads"}) {
    const TemporaryFolder folder;
    const auto run = [&](const std::string& replicas) {
      return train(folder.path(), {"--config", config_file("pmean_linear.yaml"), "--replicas",
                                   replicas, "--launch", launch, "--output", "run"});
    };
    const auto files = [&] {
      std::string all;
      for (const char* file : {"config.yaml", "metrics.jsonl", "result.json"}) {
        all += read_text(folder.path() / "run" / file);
      }
      return all;
    };
    REQUIRE(run("2").status == 0);
    const std::string before = files();
    const Ended again = run("3");
    check_status(again, 2);
    CHECK(again.out.empty());
    CHECK_THAT(lines_of(again.err).back(),
               ContainsSubstring("output folder run holds a run already (its result.json): name "
                                 "another one"));
    CHECK(files() == before);
    CHECK(entries(folder.path() / "run") == 7);
  }
}

TEST_CASE("a model that does not fit is refused before it is made, with the numbers") {
  const TemporaryFolder folder;
  const std::vector<std::string> flags{"--config", config_file("fashion_mnist_mlp.yaml"), "--set",
                                       "model.hidden=[1000000,1000000]"};
  check_refused(folder.path(), flags,
                "this job does not fit: on this host it takes 29.1 TiB (parameters 3.6 TiB, "
                "gradients 7.3 TiB, optimizer state 7.3 TiB, communication 0 B, "
                "checkpoint 10.9 TiB, order of samples 468.8 KiB, a batch's inputs 392.0 KiB, its "
                "outputs 5.0 KiB) beside other activations and data, and …");
  auto dry = flags;
  dry.emplace_back("--dry-run");
  const Ended end = train(folder.path(), dry);
  CHECK(end.status == 0);
  CHECK_THAT(end.out, ContainsSubstring(" left: the job does not fit.\n"));
}
