#include <algorithm>
#include <set>
#include <sstream>
#include <string>
#include <vector>

#include "framework/base/errors.h"
#include "framework/base/random.h"
#include "framework/base/text.h"
#include "tests/catch.h"
#include "tests/support/damage.h"
#include "tests/support/settings.h"
#include "tests/trainers/parsed_config.h"
#include "trainers/config/config.h"

namespace lockstep {
namespace {

using testing::below;
using testing::kNames;
using testing::parse;
using testing::Random;

std::string one_of(const std::vector<std::string>& texts, Random& random) {
  return texts[below(random, texts.size())];
}

bool belongs(const keys::ConfigKey& key, const std::string& choice) {
  return key.traits.owners.empty() || std::ranges::count(key.traits.owners, choice) > 0;
}

// Each "section.key: value" that a resolved config says, in its order.
std::vector<std::string> resolved_lines(const std::string& resolved) {
  std::vector<std::string> lines;
  std::string section;
  std::istringstream text(resolved);
  for (std::string line; std::getline(text, line);) {
    if (line.starts_with("  ")) {
      lines.push_back(section + "." + line.substr(2));
    } else {
      section = line.substr(0, line.find(':'));
    }
  }
  return lines;
}

// A text with any of all that may be picked, and with samples of its keys' values. Of those that
// may not stand together one, and of keys whose values depend on others none unless asked for.
std::string random_config(const std::vector<keys::Section>& table, bool has_dependent,
                          Random& random) {
  std::string text;
  for (const keys::Section& section : table) {
    text += section.name + ":\n";
    std::set<std::string> written;
    std::string choice = section.keys.front().value.print();
    for (const keys::ConfigKey& key : section.keys) {
      const keys::KeyTraits& traits = key.traits;
      const bool is_excluded = std::ranges::any_of(
          traits.instead_of, [&](const std::string& other) { return written.contains(other); });
      const bool is_left_out = !traits.required && below(random, 2) == 0;
      if (!belongs(key, choice) || is_excluded || is_left_out || (traits.problem && !has_dependent))
        continue;
      const std::string value = one_of(key.value.samples().good, random);
      if (&key == &section.keys.front()) choice = value;
      written.insert(key.name);
      text += "  " + key.name + ": " + value + "\n";
    }
    if (written.empty()) text += "  {}\n";
  }
  return text;
}

}  // namespace

TEST_CASE("the resolved config lists every key that applies, in order") {
  Config config = parse(kNames + "trainer: {steps: 1}");
  std::vector<std::string> of_table;
  for (const keys::Section& section : config_table(config)) {
    for (const keys::ConfigKey& key : section.keys) {
      const std::string value = key.value.print();
      if (value.empty() || !belongs(key, section.keys.front().value.print())) continue;
      of_table.push_back(str(section.name, ".", key.name, ": ", value));
    }
  }
  const std::vector<std::string> lines = resolved_lines(to_yaml(config));
  CHECK(lines == of_table);
  // Values that nobody has written are defaults that users rely on: a new key's is to stand here.
  const std::vector<std::string> defaults{
      "model.name: linear",
      "model.init_from: null",
      "model.init_from_strict: true",
      "model.init_from_except: []",
      "data.name: pmean_example",
      "data.batch_size: 4",
      "data.shuffle: true",
      "data.drop_last: false",
      "data.validation: 0",
      "data.threads: auto",
      "loss.name: auto",
      "loss.label_smoothing: 0",
      "loss.class_weights: []",
      "loss.ignore_index: null",
      "optimizer.name: sgd",
      "optimizer.lr: 0.01",
      "optimizer.momentum: 0",
      "optimizer.dampening: 0",
      "optimizer.nesterov: false",
      "optimizer.weight_decay: 0",
      "optimizer.groups: []",
      "schedule.name: constant",
      "schedule.warmup_steps: 0",
      "parallel.replicas: 1",
      "parallel.workers: 0",
      "parallel.launch: processes",
      "parallel.axis_name: data",
      "parallel.backend: auto",
      "parallel.threads_per_replica: 0",
      "parallel.timeout_s: 60",
      "parallel.stall_warn_s: 15",
      "parallel.prints: first",
      "parallel.link: auto",
      "parallel.allow_mixed: false",
      "parallel.zero_stage: 0",
      "parallel.bucket_mb: auto",
      "parallel.overlap: auto",
      "parallel.compression: none",
      "parallel.reduce_every_microbatch: false",
      "trainer.steps: 1",
      "trainer.seed: 0",
      "trainer.accumulate: 1",
      "trainer.precision: fp32",
      "trainer.non_finite: stop",
      "trainer.check_every: 0",
      "trainer.clip_norm: null",
      "trainer.clip_value: null",
      "trainer.ema_decay: null",
      "trainer.ema_warmup: true",
      "trainer.log_every: 20",
      "trainer.eval_every: 0",
      "trainer.metrics: []",
      "trainer.patience: null",
      "trainer.freeze: []",
      "checkpoint.save: state",
      "checkpoint.every: 0",
      "checkpoint.keep: 3",
      "checkpoint.async: true",
      "checkpoint.on_error: stop",
      "checkpoint.best: none",
      "telemetry.tensorboard: true",
      "telemetry.histograms: 0",
      "telemetry.trace: []",
      "telemetry.operators: false",
      "telemetry.report: true",
  };
  for (const std::string& line : lines) {
    INFO(line);
    CHECK(std::ranges::count(defaults, line) == 1);
  }
  CHECK(lines.size() == defaults.size());
  const std::string adam = to_yaml(
      parse("model: {name: mlp}\ndata: {name: fashion_mnist, root: /a b}\noptimizer: {name: adam, "
            "lr: 0.001}\ntrainer: {clip_norm: 0.5}"));
  CHECK_THAT(adam, ContainsSubstring("  hidden: [1024, 1024]\n"));
  CHECK_THAT(to_yaml(parse("model: {name: cnn, dense: []}\ndata: {name: pmean_example}")),
             ContainsSubstring("  name: cnn\n  channels: [32, 64]\n  dense: []\n"));
  CHECK_THAT(adam, ContainsSubstring("  root: \"/a b\"\n"));
  CHECK_THAT(adam, ContainsSubstring("  lr: 0.001\n  betas: [0.9, 0.999]\n  eps: 1.0e-08\n"));
  CHECK_THAT(adam, ContainsSubstring("  check_every: 0\n  clip_norm: 0.5\n  clip_value: null\n"));
  const std::string groups = to_yaml(
      parse(kNames + "optimizer: {groups: [{pattern: '*.bias', weight_decay: 0}, {pattern: w, "
                     "lr_scale: 2}]}\nschedule: {name: step, step_size: 3}"));
  CHECK_THAT(groups, ContainsSubstring("  groups:\n"
                                       "    - {pattern: \"*.bias\", weight_decay: 0, lr_scale: 1}\n"
                                       "    - {pattern: w, lr_scale: 2}\n"
                                       "schedule:\n"
                                       "  name: step\n  warmup_steps: 0\n  step_size: 3\n"
                                       "  gamma: 0.1\n"));
}

TEST_CASE("any resolved config loads again as the same config") {
  INFO("seed " << testing::seed());
  Config defaults;
  const std::vector<keys::Section> table = config_table(defaults);
  Random random(Key(testing::seed()).fold("any config").bits());
  std::set<std::string> picked;
  int dependent = 0;
  for (int i = 0; i < 250; ++i) {
    const bool has_dependent = i % 2 == 0;
    const std::string text = random_config(table, has_dependent, random);
    INFO(text);
    Config config;
    try {
      config = parse(text);
    } catch (const ValueError&) {
      if (!has_dependent) throw;
      continue;
    }
    dependent += has_dependent ? 1 : 0;
    for (const keys::Section& section : config_table(config)) {
      picked.insert(section.name + " " + section.keys.front().value.print());
    }
    const Config again = parse(to_yaml(config));
    REQUIRE(again == config);
    REQUIRE(to_yaml(again) == to_yaml(config));
  }
  CHECK(dependent > 0);
  for (const keys::Section& section : table) {
    for (const auto& [name, help] : section.choices) {
      INFO(section.name << " " << name);
      CHECK(picked.contains(section.name + " " + name));
    }
  }
}

TEST_CASE("a timeout is kept to the nearest millisecond") {
  const auto timeout = [](const std::string& text) {
    const Config config = parse(kNames + "parallel: {timeout_s: " + text + "}");
    CHECK(config.launch.timeout.count() == 2300);
    return values_of(config).at("parallel.timeout_s");
  };
  CHECK(timeout("2.3") == "2.3");
  CHECK(timeout("2.2996") == "2.3");
  CHECK(timeout("+2300e-3") == "2.3");
}

}  // namespace lockstep
