#include "trainers/run/run_report.h"

#include <filesystem>
#include <string>

#include <ATen/core/grad_mode.h>

#include "framework/base/text.h"
#include "framework/maps/pmap.h"
#include "framework/telemetry/run_folder.h"
#include "tests/catch.h"
#include "tests/data/made_set.h"
#include "tests/support/captured_stderr.h"
#include "tests/support/files.h"
#include "tests/support/temporary_folder.h"
#include "tests/trainers/runs.h"
#include "trainers/run/trainer.h"

using namespace lockstep;
using namespace lockstep::testing;

namespace {

namespace fs = std::filesystem;

Config reported_config(const std::string& more) {
  return parse_config(
      "model: {name: linear}\n"
      "data: {name: pmean_example, batch_size: 2}\n"
      "parallel: {replicas: 2}\n"
      "trainer: {log_every: 1, steps: 6}\n"
      "checkpoint: {every: 2}\n" +
          more,
      "test");
}

DataSets reported_data() {
  return {.train = made_set({.size = 8, .make = [](const MadeSample& sample) {
                               sample.input.fill_(static_cast<double>(sample.index) / 8);
                               sample.target.copy_(3 * sample.input - 1);
                             }})};
}

// What a run in the folder says on stderr.
std::string told_by(const Config& config, const fs::path& output) {
  const CapturedStderr captured;
  train_in_map(config, reported_data(), {.output = output});
  return captured.text();
}

int count_of(const std::string& text, const std::string& part) {
  int found = 0;
  for (std::size_t at = text.find(part); at != text.npos; at = text.find(part, at + 1)) ++found;
  return found;
}

}  // namespace

TEST_CASE("a run that ends has a report, also one that stops and goes on, with a mark for that") {
  const TemporaryFolder folder;
  const fs::path output = folder.path() / "run";
  Config config = reported_config("");
  const DataSets data = reported_data();
  train_in_map(config, data, {.output = output, .stop_after = 4});
  const std::string first = read_text(output / kReportFile);
  CHECK_THAT(first, ContainsSubstring(R"("facts":[["status","ended"],["step","4"])") &&
                        ContainsSubstring(R"("marks":[])") && ContainsSubstring("Memory"));
  RunOptions options{.output = output, .quiet = true};
  const RunFolderLock lock = folder_of_run(config, options, /*goes_on=*/true);
  pmap([&] { Trainer(config, data, options).run(); }, {.axis_name = "data", .axis_size = 2})();
  CHECK_THAT(read_text(output / kReportFile),
             ContainsSubstring(R"("facts":[["status","ended"],["step","6"])") &&
                 ContainsSubstring(R"("step":[1,2,3,4,5,6])") &&
                 ContainsSubstring(R"({"kind":"resumed","text":"went on after step 4","step":4,)"));
}

TEST_CASE("a report that can't be written is one warning; telemetry.report: false writes none") {
  const TemporaryFolder folder;
  const fs::path output = folder.path() / "run";
  fs::create_directories(output / kReportFile);
  const std::string err = told_by(reported_config(""), output);
  CHECK(count_of(err, "the run's report can't be written (said once): ") == 1);
  CHECK_THAT(err, ContainsSubstring((output / kReportFile).string()));
  CHECK(steps_in(output) == std::set<std::int64_t>{2, 4, 6});

  const fs::path without = folder.path() / "without";
  CHECK(told_by(reported_config("telemetry: {report: false}\n"), without).empty());
  CHECK_FALSE(fs::exists(without / kReportFile));
}

TEST_CASE("what a report shows of evaluations is of the weights that are kept") {
  const TemporaryFolder folder;
  const auto classes = made_set({.size = 8, .type = class_sample({1}, 2), .make = [](auto& sample) {
                                   sample.input.fill_(static_cast<double>(sample.index) - 3.5);
                                   sample.target.fill_(sample.index / 4);
                                 }});
  const DataSets data{.train = classes, .validation = classes, .test = classes};
  for (const std::string best : {"loss", "none"}) {
    INFO(best);
    RunOptions options{.output = folder.path() / best};
    options.callbacks.after_step = [](Trainer& trainer, const StepEnd& step) {
      if (step.step != 3) return;
      trainer.zero().edit_parameters([&] {  // from here on it takes each class for the other
        const at::NoGradGuard no_grad;
        for (at::Tensor& each : trainer.model().parameters()) each.mul_(-10);
      });
    };
    const auto config_of = [&](std::int64_t steps) {
      return parse_config(str("model: {name: linear}\ndata: {name: pmean_example, batch_size: 2}\n"
                              "parallel: {replicas: 2}\noptimizer: {lr: 0.5}\ntrainer: {steps: ",
                              steps, ", eval_every: 1}\ncheckpoint: {best: ", best, "}\n"),
                          "test");
    };
    const auto check_records = [&](std::int64_t step) {
      for (const char* const file : kEvaluationFiles) {
        const nlohmann::json record = read_json(options.output / file);
        CHECK(record["step"] == step);
        CHECK((record["confusion"][0][0] > record["confusion"][0][1]) == (step == 2));
      }
    };
    train_in_map(config_of(6), data, options);
    check_records(best == "none" ? 6 : 2);
    // It goes on, and the best step stays.
    Config config = config_of(8);
    options.quiet = true;
    const RunFolderLock lock = folder_of_run(config, options, /*goes_on=*/true);
    pmap([&] { Trainer(config, data, options).run(); }, {.axis_name = "data", .axis_size = 2})();
    check_records(best == "none" ? 8 : 2);
  }
}

TEST_CASE("samples of text in a report change no bit of the run") {
  const TemporaryFolder folder;
  const auto samples = made_set({.size = 8, .type = token_sample(6, 256), .make = [](auto& sample) {
                                   sample.input.fill_(97 + sample.index);
                                   sample.target.fill_(98 + sample.index);
                                 }});
  const auto outcome = [&](const std::string& name, const std::string& more) {
    const Config config = parse_config(
        "model: {name: gpt, layers: 1, heads: 2, width: 8, dropout: 0.2}\n"
        "data: {name: pmean_example, batch_size: 2}\n"
        "optimizer: {name: adam, lr: 0.01}\n"
        "parallel: {replicas: 2, " +
            more + "\ntrainer: {steps: 2, eval_every: 1}\n",
        "test");
    train_in_map(config, {.train = samples, .test = samples}, {.output = folder.path() / name});
    return result_in(folder.path() / name);
  };
  const auto with = outcome("with", "zero_stage: 2}");
  CHECK(outcome("without", "zero_stage: 2}\ntelemetry: {report: false}") == with);
  CHECK_FALSE(fs::exists(folder.path() / "without" / kEvaluationFiles[1]));
  CHECK(outcome("cut", "zero_stage: 3}") == with);
  const auto texts = read_json(folder.path() / "with" / kEvaluationFiles[1])["texts"];
  CHECK(read_json(folder.path() / "cut" / kEvaluationFiles[1])["texts"] == texts);
  REQUIRE(texts.size() == 2);
  CHECK(texts[0]["prompt"] == "aaaaaa");
  CHECK(texts[1]["prompt"] == "eeeeee");
}

TEST_CASE("reports are written beside the work, and the last one comes last") {
  const TemporaryFolder folder;
  const auto run = claim_run_folder(folder.path() / "run", "a: 1\n");
  const fs::path file = run.folder() / kReportFile;
  RunReport report(run.folder());
  for (int i = 0; i < 100; ++i) report.begin(i == 0 ? "first" : "later");
  report.finish("last");
  CHECK_THAT(read_text(file), ContainsSubstring(R"([["status","last"],)"));
}
