#include <regex>
#include <string>
#include <vector>

#include "framework/base/text.h"
#include "tests/catch.h"
#include "tests/support/ended.h"
#include "tests/support/settings.h"
#include "tests/support/temporary_folder.h"
#include "tests/train/train_in_fork.h"
#include "tests/train/train_program.h"

using namespace lockstep;
using namespace lockstep::testing;

namespace {

const Flags& mlp() {
  static const Flags flags =
      Flags{"--config", config_file("fashion_mnist_mlp.yaml"), "--replicas", "4"} +
      set("model.hidden=[336,33] data.batch_size=8 trainer.steps=50 trainer.accumulate=2 "
          "trainer.clip_norm=1.0");
  return flags;
}

const Flags& cnn() {
  static const Flags flags =
      Flags{"--config", config_file("fashion_mnist_cnn.yaml"), "--replicas", "4"} +
      set("model.channels=[4,6] model.dense=[12] data.batch_size=4 trainer.steps=50 "
          "trainer.accumulate=2 trainer.clip_norm=1.0");
  return flags;
}

// The output folder's result.json; the run must succeed.
nlohmann::json trained(const std::filesystem::path& folder, const std::string& name,
                       const Flags& flags) {
  INFO(name);
  must_train(folder, flags + Flags{"--output", name});
  return result_of(folder / name);
}

}  // namespace

TEST_CASE("a job has the same parameters at all stages, wherever its replicas are", "[slow]") {
  // Each stage meets each backend, launch and number of workers at least once over both models; the
  // perceptron's first layer is a bucket of its own where buckets have 1 MB.
  const std::vector<Flags> placements{
      set("parallel.zero_stage=0 parallel.backend=gloo parallel.overlap=on trainer.check_every=10"),
      set("parallel.zero_stage=1 parallel.bucket_mb=1"),
      set("parallel.zero_stage=1 parallel.backend=gloo parallel.overlap=off") +
          Flags{"--launch", "threads", "--workers", "3"},
      set("parallel.zero_stage=2 parallel.overlap=on") + Flags{"--workers", "2"},
      set("parallel.zero_stage=2 parallel.backend=gloo parallel.bucket_mb=0.05 "
          "trainer.check_every=10"),
      set("parallel.zero_stage=3") + Flags{"--launch", "threads"},
      set("parallel.zero_stage=3 parallel.backend=gloo"),
      set("parallel.zero_stage=3 parallel.backend=gloo parallel.overlap=off") +
          Flags{"--workers", "2"},
      set("parallel.zero_stage=3 parallel.backend=gloo") + Flags{"--workers", "1"},
  };
  Sample sample("placements of stages");
  for (const bool is_cnn : {false, true}) {
    const Flags& model = is_cnn ? cnn() : mlp();
    const TemporaryFolder folder;
    const auto expected = trained(folder.path(), "stage0", model)["parameters_sha256"];
    for (std::size_t i = 0; i < placements.size(); ++i) {
      if (is_cnn && i % 2 == 1) continue;  // what placements do differently it does alike
      if (!sample.next()) continue;
      INFO("placement " << i);
      const auto result = trained(folder.path(), str(i), model + placements[i]);
      CHECK(result["parameters_sha256"] == expected);
    }
  }
}

TEST_CASE("replicas without samples take part at every stage") {
  // 60,000 samples: the second step has 4 for 7 replicas.
  const TemporaryFolder folder;
  std::string expected;
  for (const std::string flags : {"parallel.zero_stage=0", "parallel.zero_stage=2",
                                  "parallel.zero_stage=3 parallel.backend=gloo"}) {
    const auto result =
        trained(folder.path(), flags,
                Flags{"--config", config_file("fashion_mnist_mlp.yaml"), "--replicas", "7"} +
                    set("model.hidden=[8] data.batch_size=8571 trainer.steps=2 " + flags));
    if (expected.empty()) expected = result["parameters_sha256"];
    CHECK(result["parameters_sha256"] == expected);
  }
}

TEST_CASE(
    "gradients that are not finite stop the job by a parameter's name, or the step is skipped") {
  const TemporaryFolder folder;
  const Flags diverges = mlp() + set("optimizer.name=sgd optimizer.lr=1e30 trainer.clip_norm=null "
                                     "trainer.steps=4 trainer.log_every=1");
  const Ended stopped = train(folder.path(), diverges + Flags{"--output", "stop"});
  CHECK(stopped.status == 1);
  CHECK_THAT(stopped.err, ContainsSubstring("the gradient of parameter '"));
  CHECK_THAT(stopped.err, ContainsSubstring("' is not finite at step "));
  const Ended skipped =
      train(folder.path(), diverges + set("trainer.non_finite=skip") + Flags{"--output", "skip"});
  check_status(skipped, 0);
  const auto lines = read_json_lines(folder.path() / "skip" / "metrics.jsonl");
  REQUIRE(lines.size() >= 4);
  const int count = lines[3].at("skipped_steps");
  CHECK(count >= 1);
  CHECK(result_of(folder.path() / "skip").at("skipped_steps") == count);
  CHECK_THAT(skipped.out, ContainsSubstring(str("\nskipped steps:       ", count,
                                                " of 4: the loss or a gradient was not finite\n")));
  const std::vector<std::string> warnings = lines_with("skipped", skipped.err);
  REQUIRE(warnings.size() == 1);
  CHECK(std::regex_match(warnings[0],
                         std::regex("lockstep: warning: step [2-4] is skipped: the gradient of "
                                    "parameter '.*' is not finite \\(said once; skipped_steps "
                                    "counts them\\)")));
}

TEST_CASE("a loss that is not finite is noticed at its step, not at the next line of the log") {
  const TemporaryFolder folder;
  for (const std::string flags :
       {"parallel.backend=auto", "parallel.backend=gloo", "parallel.zero_stage=2"}) {
    const Ended end = train(folder.path(),
                            Flags{"--config", config_file("pmean_linear.yaml"), "--output", flags} +
                                set("optimizer.lr=1e30 trainer.steps=5 trainer.log_every=2 "
                                    "trainer.non_finite=skip " +
                                    flags));
    check_status(end, 0);
    CHECK(result_of(folder.path() / flags).at("skipped_steps") == 4);
    // The mean of the steps whose loss is finite: the first alone.
    const auto lines = read_json_lines(folder.path() / flags / "metrics.jsonl");
    CHECK(lines[0].at("loss").is_number());
    CHECK((lines[1].at("step") == 4 && lines[1].at("loss").is_null()));
    CHECK_THAT(end.out, ContainsSubstring("step 2/5  epoch 2  loss " + lines[0]["loss"].dump()));
    CHECK_THAT(end.err, ContainsSubstring("warning: step 2 is skipped: the loss is not finite ("));
  }
}

TEST_CASE("bfloat16 trains with float32 masters, with the same bits at all stages") {
  const TemporaryFolder folder;
  const auto exact = trained(folder.path(), "fp32", mlp());
  std::string expected;
  for (const std::string flags : {"parallel.zero_stage=0", "parallel.zero_stage=1",
                                  "parallel.zero_stage=2 parallel.backend=gloo",
                                  "parallel.zero_stage=3 parallel.backend=gloo"}) {
    const auto result =
        trained(folder.path(), flags, mlp() + set("trainer.precision=bf16 " + flags));
    INFO(flags);
    if (expected.empty()) expected = result["parameters_sha256"];
    CHECK(result["parameters_sha256"] == expected);
    CHECK(result["parameters_sha256"] != exact["parameters_sha256"]);
    CHECK(result["eval"]["loss"].get<double>() < 1.1 * exact["eval"]["loss"].get<double>());
  }
}

TEST_CASE("result.json has the memory by category, predicted and measured") {
  const TemporaryFolder folder;
  for (const std::string flags : {"parallel.zero_stage=1", "parallel.zero_stage=2",
                                  "parallel.zero_stage=1 parallel.replicas=9 parallel.workers=2",
                                  "parallel.zero_stage=3 parallel.backend=gloo"}) {
    const auto result = trained(folder.path(), flags, mlp() + set("trainer.accumulate=1 " + flags));
    INFO(flags << "\n" << result["memory"].dump(1));
    for (const std::string category : {"parameters", "gradients", "optimizer_state",
                                       "communication", "checkpoint", "initialization", "host"}) {
      const auto predicted = result["memory"]["predicted"][category].get<double>();
      const auto measured = result["memory"]["measured"][category].get<double>();
      CHECK(measured <= 1.05 * predicted + 4096);
      CHECK(measured >= 0.95 * predicted - 4096);
    }
    CHECK(result["memory"]["resident"].get<double>() > 0);
    CHECK(result["memory"]["replicas"].size() == result["replicas"].get<std::size_t>());
  }
}

TEST_CASE("a dry run says what memory the job will take, and starts nothing") {
  const TemporaryFolder folder;
  const Ended end = train(folder.path(), {"--config", config_file("fashion_mnist_mlp.yaml"),
                                          "--dry-run", "--set", "parallel.zero_stage=1"});
  CHECK(end.status == 0);
  CHECK(end.err.empty());
  CHECK_THAT(end.out, Catch::Matchers::StartsWith(
                          "1863690 parameters, 2 replicas, ZeRO stage 1, optimizer adamw. Memory:\n"
                          "                     a replica   the host\n"
                          "  parameters (once)    7.1 MiB    7.1 MiB\n"
                          "  gradients            7.1 MiB   14.2 MiB\n"
                          "  optimizer state      7.1 MiB   14.2 MiB\n"
                          "  communication            0 B        0 B\n"
                          "  checkpoint          10.7 MiB   21.3 MiB\n"
                          "  in all              32.0 MiB   56.9 MiB\n"
                          "  at the start        25.3 MiB   43.5 MiB\n"
                          "  order of samples   234.4 KiB  468.8 KiB\n"
                          "  a batch's inputs   196.0 KiB  392.0 KiB\n"
                          "  activations "));
  CHECK_THAT(end.out, Catch::Matchers::EndsWith(
                          "Activations are of a microbatch. Data and LibTorch itself come on top. "
                          "Nothing was started.\n"));
  CHECK(std::filesystem::is_empty(folder.path()));
}
