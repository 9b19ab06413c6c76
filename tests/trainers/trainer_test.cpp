#include "trainers/run/trainer.h"

#include <atomic>
#include <cmath>
#include <cstdlib>
#include <memory>
#include <regex>
#include <string>
#include <system_error>
#include <vector>

#include <ATen/TensorOperators.h>

#include "framework/base/errors.h"
#include "framework/base/text.h"
#include "framework/maps/pmap.h"
#include "framework/training/autocast.h"
#include "tests/catch.h"
#include "tests/data/made_set.h"
#include "tests/support/captured_stderr.h"
#include "tests/support/message_of.h"
#include "tests/support/temporary_folder.h"
#include "tests/trainers/runs.h"
#include "trainers/config/config_options.h"
#include "trainers/run/data_record.h"
#include "trainers/run/peak.h"
#include "trainers/run/resume.h"

using namespace lockstep;
using namespace lockstep::testing;

namespace {

// 13 samples of y = 3x - 1: global batches of 6 leave one of a single sample.
MadeOptions thirteen_samples() {
  return {.size = 13, .make = [](const MadeSample& sample) {
            sample.input.fill_(static_cast<double>(sample.index) / 10);
            sample.target.copy_(3 * sample.input - 1);
          }};
}

// Whoever evaluates on it finds the output folder removed afterwards.
MadeOptions folder_removing_samples(const std::filesystem::path& folder) {
  return {.make = [folder](const MadeSample& /*sample*/) {
    std::error_code removed_by_another_replica;
    std::filesystem::remove_all(folder, removed_by_another_replica);
  }};
}

// What result.json says after two epochs with global batches of 6 samples.
nlohmann::json result_of(std::int64_t replicas, const std::filesystem::path& folder) {
  const Config config = parse_config(
      "model: {name: linear}\n"
      "data: {name: pmean_example, batch_size: " +
          std::to_string(6 / replicas) +
          "}\n"
          "optimizer: {name: sgd, lr: 0.1}\n"
          "parallel: {axis_name: i, replicas: " +
          std::to_string(replicas) +
          "}\n"
          "trainer: {epochs: 2, seed: 3}\n",
      "test");
  const auto samples = made_set(thirteen_samples());
  const DataSets data{.train = samples, .test = samples};
  train_in_map(config, data, {.output = folder});
  return read_json(folder / "result.json");
}

}  // namespace

TEST_CASE(
    "batches that do not divide, and replicas without a sample, change nothing but rounding") {
  const TemporaryFolder folder;
  const auto one = result_of(1, folder.path() / "1");
  for (const std::int64_t replicas : {2, 3, 6}) {
    const auto several = result_of(replicas, folder.path() / std::to_string(replicas));
    INFO(replicas << " replicas: " << several);
    const auto check = [](double found, double expected) {
      CHECK(found == Approx(expected).epsilon(1e-5));
    };
    check(several["parameters"]["w"], one["parameters"]["w"]);
    check(several["parameters"]["b"], one["parameters"]["b"]);
    check(several["loss"], one["loss"]);
    CHECK(several["steps"] == 6);
  }
}

TEST_CASE("a run tells its FLOPs, and their part of the machine's peak where that is known") {
  const TemporaryFolder folder;
  const std::filesystem::path cache = folder.path() / "cache";
  ::setenv("XDG_CACHE_HOME", cache.c_str(), 1);  // the user's own is no part of the tests
  const auto line_of = [&](const std::string& precision) {
    const Config config = parse_config(
        "model: {name: mlp, hidden: [5]}\ndata: {name: pmean_example, batch_size: 4}\n"
        "parallel: {replicas: 2}\ntrainer: {steps: 1, precision: " +
            precision + "}\n",
        "test");
    const DataSets data{.train = made_set(thirteen_samples())};
    const TemporaryFolder output;
    train_in_map(config, data, {.output = output.path()});
    return read_json_lines(output.path() / "metrics.jsonl").at(0);
  };
  CHECK(!line_of("fp32").contains("part_of_peak"));
  CHECK(keep_peak(at::kFloat, 2e9) == cache / "lockstep/peaks.json");
  const auto line = line_of("fp32");
  const auto rate = line.at("gflop_per_s").get<double>();
  CHECK(rate == Approx(line.at("samples_per_s").get<double>() * 6e-9 * (1 * 5 + 5 * 1)));
  CHECK(line.at("part_of_peak").get<double>() == Approx(rate / 2));
  CHECK(!line_of("bf16").contains("part_of_peak"));
  keep_peak(at::kBFloat16, 4e9);
  CHECK(known_peak(at::kFloat) == 2e9);
  CHECK(line_of("bf16").contains("part_of_peak"));
  write_text(cache / "lockstep/peaks.json", "[]");
  const CapturedStderr log;
  CHECK(!known_peak(at::kFloat));
  CHECK_THAT(log.text(), ContainsSubstring("peaks.json is damaged: `bench peak` writes it anew"));
}

TEST_CASE("a job of another number of replicas than the config's is refused") {
  const TemporaryFolder folder;
  const Config config =
      parse_config("model: {name: linear}\ndata: {name: pmean_example}\n", "test");
  const DataSets data{.train = made_set(thirteen_samples())};
  CHECK_THROWS_WITH(pmap([&] { Trainer(config, data, {.output = folder.path() / "run"}).run(); },
                         {.axis_name = "data", .axis_size = 2})(),
                    ContainsSubstring("Trainer: the config says 1 replica, and 2 run"));
}

TEST_CASE(
    "steps and evaluations compute in the config's precision, whatever a callback leaves on") {
  const Config config = parse_config(
      "model: {name: mlp, hidden: [16]}\ndata: {name: pmean_example, batch_size: 4}\n"
      "trainer: {steps: 6, eval_every: 2}\n",
      "test");
  const auto samples = made_set(thirteen_samples());
  const DataSets data{.train = samples, .test = samples};
  const auto lines_of = [&](bool leaves_on) {
    const TemporaryFolder folder;
    std::unique_ptr<AutocastScope> left_on;
    RunOptions options{.output = folder.path() / "run"};
    options.callbacks.after_step = [&](Trainer& /*trainer*/, const StepEnd& step) {
      if (step.step == 1 && leaves_on) left_on = std::make_unique<AutocastScope>(at::kBFloat16);
      if (step.step == 6) left_on.reset();
    };
    train_in_map(config, data, options);
    std::vector<nlohmann::json> lines{
        read_json(options.output / "result.json")["parameters_sha256"]};
    for (const auto& line : read_json_lines(options.output / "metrics.jsonl")) {
      if (line.contains("test_loss")) lines.push_back(line["test_loss"]);
    }
    return lines;
  };
  const auto expected = lines_of(false);
  REQUIRE(expected.size() == 4);
  CHECK(lines_of(true) == expected);
}

TEST_CASE("the learning rate follows the schedule, and metrics say so") {
  const TemporaryFolder folder;
  const Config config = parse_config(
      "model: {name: linear}\n"
      "data: {name: pmean_example, batch_size: 4}\n"
      "optimizer: {lr: 0.5, groups: [{pattern: b, lr_scale: 0}]}\n"
      "schedule: {name: linear, warmup_steps: 1}\n"
      "trainer: {steps: 5, log_every: 1, clip_value: 0.001}\n",
      "test");
  const DataSets data{.train = made_set(thirteen_samples())};
  const auto output = folder.path() / "run";
  train_in_map(config, data, {.output = output});
  std::vector<double> rates;
  for (const auto& line : read_json_lines(output / "metrics.jsonl")) rates.push_back(line.at("lr"));
  CHECK(rates == std::vector<double>{0.25, 0.5, 0.375, 0.25, 0.125});
  const auto parameters = read_json(output / "result.json")["parameters"];
  const double moved = std::fabs(parameters["w"].get<double>() - 1);
  CHECK(moved > 0);
  CHECK(moved < 0.001 * (0.25 + 0.5 + 0.375 + 0.25 + 0.125) + 1e-6);
  CHECK(parameters["b"] == 0);
}

TEST_CASE("a run whose folder is removed stops, and once all is computed tells the digest first") {
  for (const std::string where : {"eval_every: 2", "eval_every: 0"}) {
    const TemporaryFolder folder;
    const auto output = folder.path() / "run";
    const Config config = parse_config(
        "model: {name: linear}\n"
        "data: {name: pmean_example, batch_size: 4}\n"
        "parallel: {replicas: 2}\n"
        "trainer: {steps: 3, " +
            where + "}\n",
        "test");
    const DataSets data{.train = made_set(thirteen_samples()),
                        .test = made_set(folder_removing_samples(output))};
    const std::string message =
        message_of<Error>([&] { train_in_map(config, data, {.output = output}); });
    INFO(message);
    CHECK_THAT(message, ContainsSubstring("the output folder " + output.string() +
                                          " or its metrics.jsonl was removed, renamed or "
                                          "replaced during the run"));
    const bool is_over = where == "eval_every: 0";
    CHECK(std::regex_search(message, std::regex("; all 3 steps are done, parameters_sha256 is "
                                                "[0-9a-f]{64}$")) == is_over);
    CHECK(!std::filesystem::exists(output));
  }
}

TEST_CASE("checkpoints say of the data what a trainer is told, or what replica 0 finds") {
  const TemporaryFolder folder;
  const Config config = parse_config(
      "model: {name: linear}\n"
      "data: {name: pmean_example, batch_size: 4}\n"
      "parallel: {replicas: 2}\n"
      "trainer: {steps: 1}\n",
      "test");
  const SetRecords told{{kTrainSet, {13, "told"}}};
  const SetRecords found{{kTrainSet, {13, "taken 1 times"}}};
  for (const bool is_told : {true, false}) {
    std::atomic<int> taken = 0;
    MadeOptions counted = thirteen_samples();
    counted.fingerprint = [&taken] { return str("taken ", ++taken, " times"); };
    const auto samples = made_set(counted);
    const DataSets data{.train = samples, .fitted = {.inputs = {"x"}}};
    const auto output = folder.path() / (is_told ? "told" : "found");
    train_in_map(config, data, {.output = output, .sets = is_told ? told : SetRecords{}});
    const auto checkpoint = newest_checkpoint(checkpoints_of(output));
    REQUIRE(checkpoint);
    const DataRecord record = data_record(*checkpoint, checkpoint_info(*checkpoint));
    const Fitted fitted{.inputs = {"x"}, .sample = samples->type()};
    CHECK((record == DataRecord{.fitted = fitted, .sets = is_told ? told : found}));
    CHECK(taken == (is_told ? 0 : 1));
  }
}

TEST_CASE("a run from before half sums were float32's says what goes on with other bits") {
  // `began`: what the run's first checkpoint has of it.
  const auto waived_in = [](const std::filesystem::path& folder, std::int64_t began) {
    const auto run = [&](std::int64_t steps, bool goes_on) {
      Config config = parse_config(str("model: {name: resnet, depth: 8, width: 4}\n"
                                       "data: {name: fashion_mnist, batch_size: 4}\n"
                                       "trainer: {precision: bf16, steps: ",
                                       steps, "}\n"),
                                   "test");
      RunOptions options{.output = folder, .quiet = true};
      const RunFolderLock lock = folder_of_run(config, options, goes_on);
      if (goes_on) options.resume->info.counts[kSafeConvolutionsCount] = began;
      DataSets data = load_data(config.data, data_context(config));
      data.test = nullptr;
      const auto train = [&] { Trainer(config, data, options).run(); };
      pmap(train, {.axis_name = "data", .axis_size = 1})();
    };
    run(1, false);
    run(2, true);
    const CheckpointInfo info = checkpoint_info(checkpoints_of(folder) / "latest");
    const auto waived = info.texts.find(kWaivedText);
    return waived == info.texts.end() ? "" : waived->second;
  };
  const TemporaryFolder folder;
  CHECK(waived_in(folder.path() / "new", kSafeConvolutions).empty());
  CHECK_THAT(waived_in(folder.path() / "half", 2),
             ContainsSubstring("some bfloat16 sums have other bits"));
}
