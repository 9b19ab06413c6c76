// What a run decides by its validation set, what it minimizes, and who is told of it.

#include <algorithm>
#include <filesystem>
#include <map>
#include <memory>
#include <mutex>
#include <regex>
#include <string>
#include <vector>

#include <ATen/TensorOperators.h>
#include <nlohmann/json.hpp>

#include "framework/base/errors.h"
#include "framework/checkpoint/checkpoint.h"
#include "tests/catch.h"
#include "tests/data/made_set.h"
#include "tests/support/message_of.h"
#include "tests/support/temporary_folder.h"
#include "tests/trainers/runs.h"
#include "trainers/run/check_job.h"
#include "trainers/run/resume.h"
#include "trainers/run/trainer.h"

namespace lockstep {
namespace {

namespace fs = std::filesystem;
using nlohmann::json;
using testing::made_set;
using testing::MadeSample;
using testing::make_point;
using testing::message_of;
using testing::TemporaryFolder;

constexpr std::int64_t kIgnored = -100;

// Points, of which each `ignored_every`-th does not count.
std::shared_ptr<const Dataset> points(std::int64_t size, std::int64_t ignored_every = 0) {
  return made_set(
      {.size = size, .type = class_sample({2}, 3), .make = [=](const MadeSample& sample) {
         make_point(sample);
         if (ignored_every > 0 && sample.index % ignored_every == 0) sample.target.fill_(kIgnored);
       }});
}

// What a run has left in its folder.
struct Outcome {
  json result;
  std::vector<json> metrics;
};

Config config_of(const std::string& text, std::int64_t replicas) {
  const bool has_data = text.starts_with("data: ");
  return parse_config("model: {name: mlp, hidden: [8]}\n" +
                          std::string(has_data ? "" : "data: {name: pmean_example}\n") + text,
                      "test", {{"parallel.replicas", std::to_string(replicas), "--replicas"}});
}

Outcome run(const std::string& text, std::int64_t replicas, const DataSets& data,
            const fs::path& folder, RunOptions options = {}) {
  const Config config = config_of(text, replicas);
  options.output = folder;
  testing::train_in_map(config, data, options);
  return {testing::read_json(folder / "result.json"),
          testing::read_json_lines(folder / "metrics.jsonl")};
}

}  // namespace

TEST_CASE("targets that do not count leave the others' weights right on any number of replicas") {
  const TemporaryFolder folder;
  // Of 23 samples 8 don't count, and batches of 6 hold unequal numbers of these.
  const DataSets data{.train = points(23, 3)};
  const auto run_on = [&](std::int64_t replicas, const std::string& loss) {
    return run("data: {name: pmean_example, batch_size: " + std::to_string(6 / replicas) +
                   "}\noptimizer: {lr: 0.3}\nloss: " + loss +
                   "\ntrainer: {epochs: 3, log_every: 1}\n",
               replicas, data, folder.path() / (loss.substr(0, 50) + std::to_string(replicas)));
  };
  for (const std::string loss :
       {"{name: cross_entropy, ignore_index: -100}",
        "{name: cross_entropy, class_weights: [1, 0.25, 3], ignore_index: -100}"}) {
    INFO(loss);
    const Outcome one = run_on(1, loss);
    for (const std::int64_t replicas : {2, 3, 6}) {
      const Outcome several = run_on(replicas, loss);
      REQUIRE(several.metrics.size() == one.metrics.size());
      for (std::size_t i = 0; i < one.metrics.size(); ++i) {
        CHECK(several.metrics[i]["loss"].get<double>() ==
              Approx(one.metrics[i]["loss"].get<double>()).epsilon(1e-5));
      }
    }
  }
}

TEST_CASE("a global batch is a step of so many samples, in the microbatches that it needs") {
  const TemporaryFolder folder;
  const DataSets data{.train = points(64)};
  const auto digest_of = [&](const std::string& batch_size, const std::string& length) {
    return run("data: {name: pmean_example, batch_size: " + batch_size + "}\ntrainer: {steps: 5, " +
                   length + "}\n",
               2, data, folder.path() / (batch_size + length))
        .result["parameters_sha256"];
  };
  CHECK(digest_of("4", "global_batch: 24") == digest_of("4", "accumulate: 3"));
  CHECK(digest_of("100", "global_batch: 8") == digest_of("4", "accumulate: 1"));
  CHECK_THAT(message_of<ValueError>([] { (void)config_of("trainer: {global_batch: 25}\n", 2); }),
             ContainsSubstring("trainer.global_batch: must be a multiple of parallel.replicas, "
                               "which is 2; is 25"));
}

TEST_CASE("a run of so many samples ends with the step that takes the last of them") {
  const TemporaryFolder folder;
  const DataSets data{.train = points(20)};
  const Outcome outcome =
      run("data: {name: pmean_example, batch_size: 4}\ntrainer: {samples: 45, log_every: 1}\n", 2,
          data, folder.path() / "run");
  // Epochs of 8, 8 and 4 samples: two of them, and one step more.
  CHECK(outcome.result["steps"] == 7);
  CHECK(outcome.metrics.back()["samples"] == 48);
}

TEST_CASE("a run ends when the validation set's figure has not become better for long enough") {
  const TemporaryFolder folder;
  const DataSets data{.train = points(48), .validation = points(30), .test = points(10)};
  // Learning from labels that say nothing, it soon gets worse on the others.
  const std::string text =
      "data: {name: pmean_example, batch_size: 8}\noptimizer: {name: adam, lr: 0.1}\n"
      "trainer: {steps: 500, eval_every: 3, log_every: 7, patience: 4}\n"
      "checkpoint: {best: loss, keep: 1}\n";
  const fs::path output = folder.path() / "run";
  const Outcome outcome = run(text, 2, data, output);
  const auto steps = outcome.result["steps"].get<std::int64_t>();
  CHECK(steps < 400);
  CHECK(steps % 3 == 0);
  std::vector<double> losses;
  for (const json& line : outcome.metrics) {
    if (line.contains("validation_loss")) losses.push_back(line["validation_loss"]);
  }
  CHECK(losses.size() == static_cast<std::size_t>(steps / 3));
  const auto best = std::ranges::min_element(losses);
  CHECK(std::distance(best, losses.end()) == 5);
  CHECK(outcome.result["validation"]["loss"] == losses.back());
  CHECK(outcome.result["eval"].contains("accuracy"));
  // The test set is looked at once, at the end.
  CHECK(std::ranges::count_if(outcome.metrics,
                              [](const json& line) { return line.contains("eval_loss"); }) == 1);
  CHECK(outcome.metrics.back()["step"] == steps);
  const std::int64_t best_step = 3 * (1 + std::distance(losses.begin(), best));
  CHECK(checkpoint_info(output / "checkpoints" / "best").step == best_step);

  // A run that goes on from its end has none left; with more patience it goes on.
  const auto go_on = [&](const std::string& from, const std::string& patience) {
    const std::string longer = std::regex_replace(text, std::regex("patience: 4"), patience);
    Config config = config_of(longer, 2);
    RunOptions options;
    options.resume = find_resume_point(from, output, false, config);
    return run(longer, 2, data, folder.path() / patience, options).result["steps"];
  };
  const std::string last = (output / "checkpoints" / "latest").string();
  CHECK(go_on(last, "patience: 4") == steps);
  CHECK(go_on(last, "patience: 5").get<std::int64_t>() > steps);
}

TEST_CASE("what decides on the way needs a validation set, and a figure that it has") {
  const auto problem = [](const std::string& text, const DataSets& data) {
    return message_of<ValueError>([&] { check_job(config_of(text, 1), data); });
  };
  const DataSets two{.train = points(20), .test = points(5)};
  CHECK(problem("checkpoint: {best: accuracy}\n", two) ==
        "test:3:14: checkpoint.best: decides by a validation set, and there is none: "
        "data.validation=0.1 takes a tenth of the training set");
  CHECK_THAT(problem("trainer: {patience: 2}\n", two),
             ContainsSubstring("test:3:11: trainer.patience: decides by a validation set"));
  DataSets three = two;
  three.validation = three.test;
  CHECK_THAT(
      problem("checkpoint: {best: accuracy}\n", three),
      ContainsSubstring("checkpoint.best: decides by evaluations, and there is one alone, at "
                        "the end: set trainer.eval_every"));
  CHECK_THAT(problem("trainer: {metrics: [r2]}\n", two),
             ContainsSubstring(  // other tests of the program register metrics, too
                 "trainer.metrics: metric r2 is for numbers, and the data's targets are "
                 "classes; metrics of classes are accuracy, f1, f1_macro, f1_weighted, "
                 "precision, precision_macro, precision_weighted, recall, recall_macro, "
                 "recall_weighted, balanced_accuracy, loss, perplexity, bits_per_byte"));
  CHECK_THAT(problem("trainer: {metrics: [top_4]}\n", two),
             ContainsSubstring("trainer.metrics: metric top_4 does not fit the data: "));
  CHECK_THAT(
      problem("trainer: {global_batch: 1000}\n", two),
      ContainsSubstring("test:3:11: trainer.global_batch: must be at most the training set's "
                        "samples, of which there are 20; is 1000"));
  CHECK(problem("checkpoint: {best: acuracy}\ntrainer: {eval_every: 2}\n", three) ==
        "test:3:14: checkpoint.best: 'acuracy' is none of the evaluation's figures (did you mean "
        "'accuracy'?): these are loss, accuracy; trainer.metrics adds others; or write none");
  CHECK_THAT(problem("checkpoint: {best: val_f1}\ntrainer: {eval_every: 2}\n", three),
             ContainsSubstring("; trainer.metrics adds others, such as f1; or write none"));
  CHECK_THAT(problem("trainer: {metrics: [top_x]}\n", two),
             ContainsSubstring("test:3:11: trainer.metrics: "));
  CHECK_THAT(problem("loss: mean_squared_error\n", two),
             ContainsSubstring("test:3:7: loss.name: loss mean_squared_error needs targets that "
                               "are values, not classes"));
  CHECK_THAT(problem("loss: {name: cross_entropy, class_weights: [1, 2]}\n", two),
             ContainsSubstring("loss.class_weights has 2 entries, but there are 3 classes"));
}

TEST_CASE("callbacks are told of each step and evaluation on every replica, and can end the run") {
  const TemporaryFolder folder;
  const DataSets data{.train = points(40), .validation = points(10), .test = points(10)};
  std::mutex mutex;
  std::map<std::string, int> told;
  const auto count = [&](const std::string& what) {
    const std::lock_guard lock(mutex);
    ++told[what];
  };
  RunOptions options;
  options.callbacks = {.before_first_step =
                           [&](Trainer& trainer) {
                             count("begin");
                             CHECK(trainer.zero().steps() == 0);
                             CHECK(trainer.model().parameters().size() == 4);
                           },
                       .after_step =
                           [&](Trainer& trainer, const StepEnd& step) {
                             count("step");
                             CHECK(step.samples == 8 * step.step);
                             CHECK(step.lr == trainer.config().zero.optimizer.lr);
                             CHECK(step.loss.has_value() == (step.step == 5));
                             if (step.step == 7) trainer.end_after_step();
                           },
                       .after_evaluation =
                           [&](Trainer& /*trainer*/, const Evaluation& evaluation) {
                             count(evaluation.set);
                             if (evaluation.step == 4) CHECK(evaluation.is_best);
                             CHECK(evaluation.figures.contains("loss"));
                           }};
  const Outcome outcome =
      run("data: {name: pmean_example, batch_size: 4}\n"
          "trainer: {epochs: 3, eval_every: 4, log_every: 5}\n",
          2, data, folder.path() / "run", options);
  CHECK(outcome.result["steps"] == 7);
  CHECK(told ==
        std::map<std::string, int>{{"begin", 2}, {"step", 14}, {"validation", 4}, {"test", 2}});
}

TEST_CASE("lines have the mean loss since the last, callbacks that of a step that needs it") {
  const TemporaryFolder folder;
  const DataSets data{.train = points(40)};
  std::mutex mutex;
  std::map<std::int64_t, std::vector<std::pair<std::int64_t, float>>> losses;  // of each step
  RunOptions options;
  options.callbacks = {.after_step =
                           [&](Trainer& /*trainer*/, const StepEnd& step) {
                             const std::lock_guard lock(mutex);
                             if (!step.loss) return;
                             losses[step.step].emplace_back(step.replica, *step.loss);
                           },
                       .needs_loss = [](std::int64_t step) { return step % 2 == 0; }};
  const auto losses_logged = [&](const std::string& every, const RunOptions& how) {
    const Outcome outcome =
        run("data: {name: pmean_example, batch_size: 4}\ntrainer: {steps: 7, log_every: " + every +
                "}\n",
            2, data, folder.path() / every, how);
    std::map<std::int64_t, float> logged;
    for (const json& line : outcome.metrics) logged[line.at("step")] = line.at("loss").get<float>();
    return logged;
  };
  const auto means = losses_logged("5", options);
  const auto logged = losses_logged("1", {});
  const auto mean = [&](std::int64_t first, std::int64_t last) {
    double sum = 0;
    for (std::int64_t step = first; step <= last; ++step) sum += logged.at(step);
    return static_cast<float>(sum / static_cast<double>(last - first + 1));
  };
  CHECK(means == std::map<std::int64_t, float>{{5, mean(1, 5)}, {7, mean(6, 7)}});
  REQUIRE(losses.size() == 5);
  for (auto& [step, told] : losses) {
    std::ranges::sort(told);
    const float loss = logged.at(step);
    CHECK(told == std::vector<std::pair<std::int64_t, float>>{{0, loss}, {1, loss}});
  }
}

TEST_CASE("in bf16 products round, parameters and their digest are float32, alike everywhere") {
  const TemporaryFolder folder;
  const DataSets data{.train = points(40)};
  const auto result_of = [&](const std::string& precision, const std::string& stage) {
    return run("data: {name: pmean_example, batch_size: 4}\nparallel: {zero_stage: " + stage +
                   "}\ntrainer: {steps: 6, precision: " + precision + "}\n",
               2, data, folder.path() / (precision + stage))
        .result;
  };
  const json full = result_of("fp32", "0"), half = result_of("bf16", "0");
  CHECK(half["parameters_sha256"] != full["parameters_sha256"]);
  CHECK(half["loss"].get<double>() == Approx(full["loss"].get<double>()).epsilon(0.02));
  CHECK(half["memory"]["measured"] == full["memory"]["measured"]);
  CHECK(result_of("bf16", "2")["parameters_sha256"] == half["parameters_sha256"]);
}

}  // namespace lockstep
