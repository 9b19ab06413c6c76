#include <filesystem>
#include <sstream>
#include <string>

#include "framework/base/text.h"
#include "tests/catch.h"
#include "tests/support/ended.h"
#include "tests/support/temporary_folder.h"
#include "tests/train/train_in_fork.h"
#include "tests/train/train_program.h"

using namespace lockstep;
using namespace lockstep::testing;

namespace {

namespace fs = std::filesystem;

// Flags of a run that ends after `steps`.
Flags linear(int steps, const std::string& output) {
  return Flags{"--config", config_file("pmean_linear.yaml"), "--output", output} +
         set(str("trainer.steps=", steps));
}

Flags mlp(const std::string& output) {
  return Flags{"--config", config_file("fashion_mnist_mlp.yaml"), "--quiet", "--output", output} +
         set("model.hidden=[8] trainer.steps=20");
}

void export_run(const fs::path& folder, const std::string& run) {
  must_train(folder,
             {"export", "--checkpoint", run + "/checkpoints/latest", "--to", run + ".safetensors"});
}

}  // namespace

TEST_CASE("a run begins with the weights of model.init_from") {
  const TemporaryFolder folder;
  must_train(folder.path(), linear(1, "one"));
  must_train(folder.path(), linear(2, "two"));
  export_run(folder.path(), "one");
  // SGD has no state and all batches are the same: one step from there is the second step.
  for (const std::string from : {"one.safetensors", "one/checkpoints/latest"}) {
    for (const std::string stage : {"0", "3"}) {
      const std::string name = "from" + std::to_string(from.size()) + stage;
      const Ended end = must_train(
          folder.path(),
          linear(1, name) + set("model.init_from=" + from + " parallel.zero_stage=" + stage));
      CHECK_THAT(end.out, ContainsSubstring("original parameters: w = 2.625, b = 0.16\n"));
      CHECK(digest_of(folder.path() / name) == digest_of(folder.path() / "two"));
    }
  }
  const Ended half =
      must_train(folder.path(), linear(1, "half") + set("model.init_from=one.safetensors "
                                                        "model.init_from_except=[b]"));
  CHECK_THAT(half.out, ContainsSubstring("original parameters: w = 2.625, b = 0\n"));
  CHECK_THAT(half.err, ContainsSubstring("model: 2 of 2 parameters are trained; weights of "
                                         "one.safetensors, but b of the model's own\n"));
}

TEST_CASE("a run that goes on needs no file of first weights any more") {
  const TemporaryFolder folder;
  must_train(folder.path(), linear(1, "one"));
  export_run(folder.path(), "one");
  const Flags flags = linear(1, "two") + Flags{"--set", "model.init_from=one.safetensors"};
  must_train(folder.path(), flags);
  fs::remove(folder.path() / "one.safetensors");
  CHECK(train(folder.path(), flags + Flags{"--resume", "auto"}).status == 0);
}

TEST_CASE("weights that do not fit are refused before the run, or left out where that is allowed") {
  const TemporaryFolder folder;
  must_train(folder.path(), mlp("small"));
  export_run(folder.path(), "small");
  const std::string set = "model.init_from=small.safetensors";
  const auto run = [&](const std::string& hidden, const Flags& more) {
    return train(folder.path(), Flags{"--config", config_file("fashion_mnist_mlp.yaml"), "--set",
                                      "model.hidden=" + hidden, "--set", "trainer.steps=1",
                                      "--output", "run", "--set", set} +
                                    more);
  };
  const Ended deeper = run("[8, 10]", {});
  CHECK(deeper.status == 2);
  CHECK(deeper.err ==
        "lockstep: error: --set " + set +
            ": model.init_from: small.safetensors does not fit the model: missing: 2.weight, "
            "2.bias\n");
  const Ended wider = run("[9]", {"--set", "model.init_from_strict=false"});
  CHECK(wider.status == 2);
  CHECK_THAT(wider.err, ContainsSubstring("'0.weight' is F32 (8, 784), not F32 (9, 784)"));
  const Ended partial = run("[8, 10]", {"--set", "model.init_from_strict=false"});
  check_status(partial, 0);
  CHECK_THAT(partial.err, ContainsSubstring("lockstep: warning: model.init_from: "
                                            "small.safetensors: missing: 2.weight, 2.bias\n"));
  CHECK(lines_of(partial.err).size() == 7);  // with four of the data and one each of model and job
  CHECK_THAT(wider.err,
             ContainsSubstring("; model.init_from_except leaves out those that a pattern is "
                               "for\n"));
  // A head of another shape keeps its own first values. What else is there is still compared.
  const auto without = [&](const std::string& hidden, const std::string& names) {
    return run(hidden, {"--dry-run", "--set", "model.init_from_except=" + names});
  };
  check_status(without("[9]", "[0.*, 1.weight]"), 0);
  check_status(without("[8, 10]", "[2.*]"), 0);
  const Ended other = without("[9]", "[0.weight]");
  CHECK(other.status == 2);
  CHECK_THAT(other.err, ContainsSubstring("'0.bias' is F32") && !ContainsSubstring("'0.weight'"));
  CHECK_THAT(without("[8]", "[head.*]").err,
             ContainsSubstring("model.init_from_except: nothing of the model matches the pattern "
                               "'head.*'; it has 0.weight, "));
  const Ended none = run("[8]", {"--set", "model.init_from=none.safetensors", "--dry-run"});
  CHECK(none.status == 2);
  CHECK(none.err ==
        "lockstep: error: --set model.init_from=none.safetensors: model.init_from: "
        "none.safetensors: No such file or directory\n");
}

TEST_CASE("parameters that trainer.freeze names stay as they are") {
  for (const std::string stage : {"0", "3"}) {
    const TemporaryFolder folder;
    const Ended end = must_train(
        folder.path(), linear(1, "run") + set("trainer.freeze=[b] parallel.zero_stage=" + stage));
    CHECK_THAT(end.out, ContainsSubstring("updated parameters:  w = 2.625, b = 0\n"));
    CHECK_THAT(end.err, ContainsSubstring("model: 1 of 2 parameters are trained\n"));
    export_run(folder.path(), "run");
    CHECK(fs::exists(folder.path() / "run.safetensors"));
    const Ended resumed = train(
        folder.path(), linear(2, "run") + Flags{"--set", "trainer.freeze=[b]", "--resume", "auto"});
    CHECK_THAT(resumed.out, ContainsSubstring(", b = 0\n"));
  }
}

TEST_CASE("a script reads an export with NumPy and has the model's figures") {
  const TemporaryFolder folder;
  must_train(folder.path(), mlp("run"));
  export_run(folder.path(), "run");
  const Ended end =
      run_program({PYTHON, std::string(LOCKSTEP_SOURCE_DIR) + "/tests/python/read_export_numpy.py",
                   "run.safetensors"},
                  folder.path());
  require_status(end, 0);
  std::istringstream figures(end.out);
  double accuracy = 0;
  double loss = 0;
  figures >> accuracy >> loss;
  const auto expected = result_of(folder.path() / "run")["eval"];
  CHECK(accuracy == Approx(expected["accuracy"].get<double>()).margin(2e-4));
  CHECK(loss == Approx(expected["loss"].get<double>()).epsilon(1e-5));
}
