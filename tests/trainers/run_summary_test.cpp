#include "trainers/run/run_summary.h"

#include <atomic>
#include <cstdint>
#include <filesystem>
#include <limits>
#include <map>
#include <memory>
#include <set>
#include <stdexcept>
#include <string>
#include <vector>

#include <ATen/ops/full.h>
#include <ATen/ops/ones.h>
#include <ATen/ops/zeros.h>

#include "framework/base/text.h"
#include "framework/formats/image.h"
#include "framework/maps/pmap.h"
#include "tests/catch.h"
#include "tests/data/made_set.h"
#include "tests/support/captured_stderr.h"
#include "tests/support/event_records.h"
#include "tests/support/occurrences.h"
#include "tests/support/temporary_folder.h"
#include "tests/trainers/runs.h"
#include "trainers/run/picture_uri.h"
#include "trainers/run/trainer.h"
#include "trainers/run/wrong_pictures.h"

using namespace lockstep;
using namespace lockstep::testing;

namespace {

namespace fs = std::filesystem;

std::shared_ptr<const Dataset> lines_samples() {
  return made_set({.size = 8, .make = [](const MadeSample& sample) {
                     sample.input.fill_(static_cast<double>(sample.index) / 8);
                     sample.target.copy_(3 * sample.input - 1);
                   }});
}

Config config_of(const std::string& more, const std::string& trainer = "steps: 4") {
  return parse_config(
      "model: {name: linear}\n"
      "data: {name: pmean_example, batch_size: 2}\n"
      "optimizer: {lr: 0.5}\n"
      "trainer: {log_every: 1, eval_every: 2, " +
          trainer + "}\n" + more + "\n",
      "test");
}

std::set<std::int64_t> steps_of(const ShownValues& shown, const std::string& tag) {
  std::set<std::int64_t> steps;
  if (!shown.contains(tag)) return steps;
  for (const auto& [step, value] : shown.at(tag)) steps.insert(step);
  return steps;
}

// The first session's start, as a message of TensorBoard's hparams plugin.
std::string start_of_session(const fs::path& folder) {
  for (const std::string& record : event_records(event_files(folder).front())) {
    if (fields_at(record, {5, 1, 9, 1, 1}) == std::vector<std::string>{"hparams", "hparams"}) {
      return fields_at(record, {5, 1, 9, 1, 2}).front();
    }
  }
  throw std::runtime_error("there are no hyperparameters");
}

}  // namespace

TEST_CASE("event files have each number of a run's metrics once, by figure and set") {
  const TemporaryFolder folder;
  const Config config = config_of("parallel: {replicas: 2}");
  const auto samples = lines_samples();
  train_in_map(config, {.train = samples, .validation = samples, .test = samples},
               {.output = folder.path() / "run"});
  REQUIRE(event_files(folder.path() / "run").size() == 1);
  const ShownValues shown = shown_in(folder.path() / "run");
  std::set<std::string> wanted;
  for (const auto& line : read_json_lines(folder.path() / "run" / "metrics.jsonl")) {
    const std::int64_t step = line["step"];
    for (const auto& [field, value] : line.items()) {
      if (value.is_object()) {
        for (const auto& part : value.items()) wanted.insert("train/" + field + "/" + part.key());
      }
      if (!value.is_number()) continue;
      std::string tag = "train/" + field;
      if (field == "loss") tag = "loss/train";
      if (field == "validation_loss") tag = "loss/validation";
      if (field == "test_loss") tag = "loss/test";
      const bool is_place = field == "elapsed_s" || field == "samples";
      if (field == "step" || field == "time" || field == "eval_loss" ||
          (is_place && !line.contains("lr")))
        continue;
      wanted.insert(tag);
      if (field == "elapsed_s") continue;  // a step's lines differ
      INFO(tag << ", step " << step);
      REQUIRE(steps_of(shown, tag).contains(step));
      CHECK(shown.at(tag).at(step) == str(value.get<float>()));
    }
  }
  CHECK(wanted.contains("train/lr"));
  CHECK(wanted.contains("loss/test"));
  CHECK(wanted.contains("loss/validation"));
  wanted.insert("config/text_summary");
  wanted.insert("_hparams_/session_start_info");
  wanted.insert("_hparams_/session_end_info");
  std::set<std::string> tags;
  for (const auto& [tag, steps] : shown) tags.insert(tag);
  CHECK(tags == wanted);
  const std::string file = read_text(event_files(folder.path() / "run").front());
  CHECK_THAT(file, ContainsSubstring("    optimizer:\n      name: sgd\n      lr: 0.5\n"));
}

TEST_CASE("files for viewers that are removed or can't be written are left out, and said once") {
  const TemporaryFolder folder;
  const fs::path run = folder.path() / "run";
  fs::create_directories(run / "events.jsonl");
  RunOptions options{.output = run};
  options.callbacks.after_step = [&](Trainer& /*trainer*/, const StepEnd& step) {
    if (step.step == 2) fs::remove(event_files(run).front());
  };
  const CapturedStderr captured;
  const auto samples = lines_samples();
  train_in_map(config_of("telemetry: {histograms: 1}"), {.train = samples, .test = samples},
               options);
  const std::string text = captured.text();
  CHECK(count(text, "event files for TensorBoard are left out from here on: " +
                        (run / "events.out.tfevents.").string()) == 1);
  CHECK(count(text, " was removed, renamed or replaced while it was written\n") == 1);
  CHECK(count(text, "the run's start is not among its events: ") == 1);
  CHECK(fs::exists(run / "result.json"));
  CHECK(metrics_of(run).size() == 6);  // steps 1 to 4, and evaluations after 2 and 4
  CHECK(event_files(run).empty());
}

TEST_CASE("a foreign checkpoint's place of an event file cuts no file elsewhere") {
  const TemporaryFolder folder;
  const fs::path own = folder.path() / "run" / "events.out.tfevents.1.host.2.3";
  const fs::path other = folder.path() / "other";
  fs::create_directory(folder.path() / "run");
  for (const fs::path& file : {own, other}) write_text(file, "text");
  for (const std::string& place : {other.string() + " 1", std::string("../other 1"),
                                   std::string("events.out.tfevents./../../other 1")}) {
    cut_summary(folder.path() / "run", place);
    CHECK(read_text(other) == "text");
  }
  cut_summary(folder.path() / "run", own.filename().string() + " 1");
  CHECK(read_text(own) == "t");
}

TEST_CASE("of a step's time its parts are curves, but not each replica's") {
  const TemporaryFolder folder;
  const Config config = config_of("");
  const std::map<std::string, double> replicas{{"0", 0.5}, {"1", 0.25}};
  RunSummary(folder.path(), config, 0)
      .add(1, {{"loss", 1.0},
               {"parts", std::map<std::string, double>{{"forward", 0.5}}},
               {"replica_own_s", replicas},
               {"replica_waiting_s", replicas}});
  std::set<std::string> tags;
  for (const auto& [tag, steps] : shown_in(folder.path())) tags.insert(tag);
  CHECK(tags == std::set<std::string>{"config/text_summary", "loss/train", "train/parts/forward"});
}

TEST_CASE("figures of the best step are at that step") {
  const TemporaryFolder folder;
  RunSummary(folder.path(), config_of(""), 0)
      .add(8, {{"best_step", std::int64_t{3}}, {"test_best_loss", 0.5}});
  CHECK(steps_of(shown_in(folder.path()), "loss/test_best") == std::set<std::int64_t>{3});
}

TEST_CASE("hyperparameters are the values of the keys that apply, by their types") {
  const TemporaryFolder folder;
  const Config config = config_of("", "steps: 1, metrics: [r2], clip_norm: null");
  train_in_map(config, {.train = lines_samples()}, {.output = folder.path() / "run"});
  const std::string start = start_of_session(folder.path() / "run");
  const auto value_of = [&](const std::string& key) -> std::string {
    for (const std::string& entry : fields_at(start, {3, 1})) {
      if (fields_at(entry, {1}).front() != key) continue;
      const std::string value = fields_at(entry, {2}).front();
      for (const std::string& number : fields_at(value, {2})) return str(number_in<double>(number));
      for (const std::string& text : fields_at(value, {3})) return "text " + text;
      for (const std::string& flag : fields_at(value, {4})) return flag[0] == 1 ? "true" : "false";
    }
    return "none";
  };
  CHECK(value_of("optimizer.lr") == "0.5");
  CHECK(value_of("trainer.steps") == "1");
  CHECK(value_of("data.shuffle") == "true");
  CHECK(value_of("data.drop_last") == "false");
  CHECK(value_of("model.name") == "text linear");
  CHECK(value_of("trainer.metrics") == "text [r2]");
  CHECK(value_of("trainer.clip_norm") == "none");  // null
  CHECK(value_of("trainer.epochs") == "none");     // the length is in steps
  CHECK(value_of("optimizer.betas") == "none");    // adam's
  CHECK(value_of("checkpoint.keep") == "none");    // no figure depends on it
}

TEST_CASE("a run that goes on has a new file and no step twice, also behind one that was cut") {
  const TemporaryFolder folder;
  Config config = config_of("checkpoint: {every: 2}");
  const auto samples = lines_samples();
  const DataSets data{.train = samples, .test = samples};
  const auto output = folder.path() / "run";
  train_in_map(config, data, {.output = output, .stop_after = 3});
  fs::remove_all(checkpoints_of(output) / "step-00000003");
  RunOptions options{.output = output, .quiet = true};
  const RunFolderLock lock = folder_of_run(config, options, /*goes_on=*/true);
  REQUIRE(options.resume->info.step == 2);
  pmap([&] { Trainer(config, data, options).run(); }, {.axis_name = "data", .axis_size = 1})();
  CHECK(event_files(output).size() == 2);
  const ShownValues shown = shown_in(output);
  CHECK(steps_of(shown, "loss/train") == std::set<std::int64_t>{1, 2, 3, 4});
  CHECK(steps_of(shown, "loss/test") == std::set<std::int64_t>{2, 4});
  CHECK(steps_of(shown, "config/text_summary") == std::set<std::int64_t>{1, 3});

  // In another folder it begins there.
  options.output = folder.path() / "other";
  train_in_map(config, data, options);
  CHECK(steps_of(shown_in(options.output), "loss/train") == std::set<std::int64_t>{3, 4});
}

TEST_CASE("telemetry.tensorboard: false writes no event files, and callbacks have no writer") {
  const TemporaryFolder folder;
  const auto count = [&](const std::string& tensorboard) {
    std::atomic<int> writers = 0;
    RunOptions options{.output = folder.path() / tensorboard};
    options.callbacks.after_step = [&](Trainer& trainer, const StepEnd& step) {
      if (SummaryWriter* const writer = trainer.summary()) {
        writer->add_scalar("mine", static_cast<double>(2 * step.step), step.step);
        ++writers;
      }
    };
    train_in_map(config_of("parallel: {replicas: 2}\ntelemetry: {tensorboard: " + tensorboard +
                           ", histograms: 1}"),
                 {.train = lines_samples()}, options);
    return writers.load();
  };
  CHECK(count("false") == 0);
  CHECK(event_files(folder.path() / "false").empty());
  CHECK(count("true") == 4);  // replica 0's steps
  CHECK(shown_in(folder.path() / "true").at("mine").at(4) == "8");
}

TEST_CASE("histograms show parameters and mean gradients by name, alike at all stages") {
  const TemporaryFolder folder;
  // Of each histogram its least, largest, number and sum.
  const auto histograms_of = [&](const std::string& stage) {
    const auto output = folder.path() / stage;
    train_in_map(
        config_of("parallel: {replicas: 2, zero_stage: " + stage + "}\ntelemetry: {histograms: 2}"),
        {.train = lines_samples()}, {.output = output});
    std::map<std::string, std::string> histograms;
    for (const std::string& record : event_records(event_files(output).front())) {
      for (const std::string& histogram : fields_at(record, {5, 1, 5})) {
        std::string text;
        for (const std::uint64_t field : {1, 2, 3, 4}) {
          for (const std::string& number : fields_at(histogram, {field})) {
            text += str(number_in<double>(number), " ");
          }
        }
        histograms[str(fields_at(record, {5, 1, 1}).front(), " ", step_of(record))] = text;
      }
    }
    return histograms;
  };
  const auto expected = histograms_of("0");
  std::vector<std::string> names;
  for (const auto& [name, text] : expected) names.push_back(name);
  CHECK(names == std::vector<std::string>{"gradients/b 2", "gradients/b 4", "gradients/w 2",
                                          "gradients/w 4", "parameters/b 2", "parameters/b 4",
                                          "parameters/w 2", "parameters/w 4"});
  const auto result = read_json(folder.path() / "0" / "result.json")["parameters"];
  const auto of_one = [](const std::string& value) {
    return value + " " + value + " 1 " + value + " ";
  };
  CHECK(expected.at("parameters/w 4") == of_one(str(result["w"].get<double>())));
  for (const std::string stage : {"1", "2", "3"}) {
    INFO("stage " << stage);
    CHECK(histograms_of(stage) == expected);
  }
}

TEST_CASE("an evaluation shows the first pictures that were taken for another class, by name") {
  const TemporaryFolder folder;
  // Of each three pictures the last is light; all have a dark and a light end.
  const auto is_light = [](std::int64_t index) { return index % 3 == 2; };
  const auto samples = made_set({.size = 20,
                                 .type = class_sample({1, 4, 2}, 2),
                                 .class_names = {"dark", "light"},
                                 .make = [&](const MadeSample& sample) {
                                   sample.input.fill_(is_light(sample.index) ? 3 : -3);
                                   sample.input[0][0][0] = -5;
                                   sample.input[0][3][1] = 5;
                                   sample.target.fill_(is_light(sample.index) ? 1 : 0);
                                 }});
  // It says dark of all: the rate is too small to change that.
  const Config config = parse_config(
      "model: {name: mlp, hidden: [1]}\n"
      "data: {name: pmean_example, batch_size: 2}\n"
      "optimizer: {lr: 1.0e-30}\n"
      "parallel: {replicas: 2}\n"
      "trainer: {steps: 1}\n",
      "test");
  const auto output = folder.path() / "run";
  RunOptions options{.output = output};
  options.callbacks.before_first_step = [](Trainer& trainer) {
    trainer.zero().edit_parameters([&] {
      for (const at::Tensor& parameter : trainer.model().parameters()) parameter.detach().zero_();
      trainer.model().parameters().back().detach()[0] = 1;
    });
  };
  train_in_map(config, {.train = samples, .test = samples}, options);
  std::vector<std::string> tags;
  std::vector<std::string> files;
  for (const std::string& record : event_records(event_files(output).front())) {
    for (const std::string& file : fields_at(record, {5, 1, 4, 4})) {
      tags.push_back(fields_at(record, {5, 1, 1}).front());
      files.push_back(file);
    }
  }
  std::vector<std::string> wanted;
  for (const int index : {2, 5, 8, 11, 14}) {
    wanted.push_back(str("wrong_test/", index, " is light, predicted dark"));
  }
  CHECK(tags == wanted);
  const auto* const bytes = reinterpret_cast<const std::uint8_t*>(files.at(0).data());
  CHECK(formats::decode_png({bytes, files[0].size()}, "picture").pixels ==
        std::vector<std::uint8_t>{0, 204, 204, 204, 204, 204, 204, 255});
  // For the report, too, the worst first.
  const auto seen = read_json(output / kEvaluationFiles[1]);
  CHECK(seen["confusion"] == nlohmann::json{{14, 0}, {6, 0}});
  CHECK(seen["worst"][0]["index"] == 2);
  CHECK(seen["worst"][0]["picture"] == picture_uri(picture_of(*samples, 2)));
  CHECK_FALSE(are_pictures(class_sample({2, 4, 4}, 2)));
  CHECK_FALSE(are_pictures(class_sample({8}, 2)));
  CHECK_FALSE(are_pictures(value_sample({3, 4, 4}, 1)));
}

TEST_CASE("values without a histogram are a word, said once for each reason") {
  const TemporaryFolder folder;
  const Config config = config_of("");
  RunSummary summary(folder.path(), config, 0);
  CHECK(summary.add_histogram("parameters/a", at::ones({2}), 1).empty());
  CHECK(summary.add_histogram("parameters/b", at::zeros({0}), 2) ==
        "step 2: there is no histogram of parameters/b: it has no elements (said once)");
  const auto nan = at::full({2}, std::numeric_limits<double>::quiet_NaN());
  CHECK(summary.add_histogram("gradients/a", nan, 3) ==
        "step 3: there is no histogram of gradients/a: it has elements that are not finite (said "
        "once)");
  CHECK(summary.add_histogram("gradients/b", nan, 4).empty());
  const ShownValues shown = shown_in(folder.path());
  CHECK(shown.contains("parameters/a"));
  CHECK_FALSE(shown.contains("gradients/b"));
}
