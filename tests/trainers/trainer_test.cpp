#include "trainers/run/trainer.h"

#include <atomic>
#include <cmath>
#include <fstream>
#include <iterator>
#include <optional>
#include <regex>
#include <string>
#include <system_error>

#include <ATen/TensorOperators.h>

#include "framework/base/errors.h"
#include "framework/base/text.h"
#include "framework/replicas/pmap.h"
#include "framework/telemetry/run_folder.h"
#include "tests/catch.h"
#include "tests/data/made_set.h"
#include "tests/support/message_of.h"
#include "trainers/bench/testing/temporary_folder.h"
#include "trainers/config/config_options.h"
#include "trainers/run/data_record.h"
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

// The text of result.json after two epochs with global batches of 6 samples.
std::string result_of(std::int64_t replicas, const std::filesystem::path& folder) {
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
  const RunFolderLock lock = claim_run_folder(folder, to_yaml(config));
  pmap([&] { Trainer(config, data, {.output = folder, .quiet = true}).run(); },
       {.axis_size = replicas})();
  std::ifstream in(folder / "result.json");
  return {std::istreambuf_iterator<char>(in), {}};
}

double number_after(const std::string& text, const std::string& key) {
  const std::size_t at = text.find('"' + key + "\":");
  REQUIRE(at != std::string::npos);
  return std::stod(text.substr(at + key.size() + 3));
}

}  // namespace

TEST_CASE(
    "batches that do not divide, and replicas without a sample, change nothing but rounding") {
  const TemporaryFolder folder;
  const std::string one = result_of(1, folder.path() / "1");
  for (const std::int64_t replicas : {2, 3, 6}) {
    const std::string several = result_of(replicas, folder.path() / std::to_string(replicas));
    for (const char* const key : {"w", "b", "loss"}) {
      INFO(replicas << " replicas: " << key);
      CHECK(number_after(several, key) == Approx(number_after(one, key)).epsilon(1e-5));
    }
    CHECK(number_after(several, "steps") == 6);
  }
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
  const RunFolderLock lock = claim_run_folder(output, to_yaml(config));
  pmap([&] { Trainer(config, data, {.output = output, .quiet = true}).run(); },
       {.axis_name = "data", .axis_size = 1})();
  std::ifstream metrics(output / "metrics.jsonl");
  for (const double lr : {0.25, 0.5, 0.375, 0.25, 0.125}) {
    std::string line;
    REQUIRE(std::getline(metrics, line));
    CHECK(number_after(line, "lr") == lr);
  }
  std::ifstream in(output / "result.json");
  const std::string result{std::istreambuf_iterator<char>(in), {}};
  const double moved = std::fabs(number_after(result, "w") - 1);
  CHECK(moved > 0);
  CHECK(moved < 0.001 * (0.25 + 0.5 + 0.375 + 0.25 + 0.125) + 1e-6);
  CHECK(number_after(result, "b") == 0);
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
    const RunFolderLock lock = claim_run_folder(output, to_yaml(config));
    const std::string message = message_of<Error>([&] {
      pmap([&] { Trainer(config, data, {.output = output, .quiet = true}).run(); },
           {.axis_name = "data", .axis_size = 2})();
    });
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
    RunOptions options{.output = folder.path() / (is_told ? "told" : "found"), .quiet = true};
    if (is_told) options.sets = told;
    const RunFolderLock lock = claim_run_folder(options.output, to_yaml(config));
    pmap([&] { Trainer(config, data, options).run(); }, {.axis_name = "data", .axis_size = 2})();
    const auto checkpoint = newest_checkpoint(checkpoints_of(options.output));
    REQUIRE(checkpoint);
    const DataRecord record = data_record(*checkpoint, checkpoint_info(*checkpoint));
    const Fitted fitted{.inputs = {"x"}, .sample = samples->type()};
    CHECK((record == DataRecord{.fitted = fitted, .sets = is_told ? told : found}));
    CHECK(taken == (is_told ? 0 : 1));
  }
}

TEST_CASE("a run from before convolutions were safe says what goes on with other bits") {
  // `began`: what the run's first checkpoint has of it.
  const auto waived_in = [](const std::filesystem::path& folder, std::int64_t width,
                            std::optional<std::int64_t> began) {
    const auto run = [&](std::int64_t steps, bool goes_on) {
      Config config = parse_config(
          str("model: {name: resnet, depth: 8, width: ", width,
              "}\ndata: {name: fashion_mnist, batch_size: 4}\ntrainer: {steps: ", steps, "}\n"),
          "test");
      RunOptions options{.output = folder, .quiet = true};
      std::optional<RunFolderLock> lock;
      if (goes_on) {
        lock.emplace(folder);
        options.resume = find_resume_point("auto", folder, false, config);
        auto& counts = options.resume->info.counts;
        counts.erase(kSafeConvolutionsCount);
        if (began) counts.emplace(kSafeConvolutionsCount, *began);
      } else {
        lock.emplace(claim_run_folder(folder, to_yaml(config)));
      }
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
  CHECK(waived_in(folder.path() / "new", 4, kSafeConvolutions).empty());
  for (const auto began : {std::optional<std::int64_t>(), std::optional<std::int64_t>(1)}) {
    CHECK_THAT(waived_in(folder.path() / (began ? "first" : "old"), 4, began),
               ContainsSubstring("some convolutions, as strided 1x1 ones of few channels"));
  }
}
