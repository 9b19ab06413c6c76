#include <algorithm>
#include <map>
#include <optional>
#include <sstream>
#include <string>
#include <utility>
#include <vector>

#include "framework/base/errors.h"
#include "framework/base/text.h"
#include "tests/catch.h"
#include "tests/support/message_of.h"
#include "tests/trainers/parsed_config.h"
#include "trainers/config/config.h"

namespace lockstep {
namespace {

using Catch::Matchers::EndsWith;
using Catch::Matchers::StartsWith;
using testing::kNames;
using testing::message_of;
using testing::parse;

using Sets = std::vector<std::string>;  // "section.key=value" each

std::string path_of(const keys::Section& section, const keys::ConfigKey& key) {
  return section.name + "." + key.name;
}

// Calls use(section, key, "section.key") for each key of the table.
template <typename Use>
void for_each_key(const Use& use) {
  Config config;
  for (const keys::Section& section : config_table(config)) {
    for (const keys::ConfigKey& key : section.keys) use(section, key, path_of(section, key));
  }
}

// What a config says so that it may have this value of the key: the choice that the key belongs to,
// and what that needs.
Sets needed_by(const keys::Section& section, const keys::ConfigKey& key, const std::string& value) {
  const keys::ConfigKey& first = section.keys.front();
  const auto& owners = key.traits.owners;
  const std::string choice = &key == &first ? value : owners.empty() ? "" : owners.front();
  Sets sets;
  if (!owners.empty()) sets.push_back(path_of(section, first) + "=" + choice);
  for (const keys::ConfigKey& other : section.keys) {
    const bool is_its = std::ranges::count(other.traits.owners, choice) > 0;
    if (&other == &key || !is_its || !other.traits.required) continue;
    sets.push_back(path_of(section, other) + "=" + other.value.samples().good.front());
  }
  return sets;
}

// What they are read as, if they are: kept, since most are asked for again and again.
const std::optional<Config>& read(const Sets& sets) {
  static std::map<Sets, std::optional<Config>> known;
  const auto [at, is_new] = known.try_emplace(sets);
  if (is_new) {
    try {
      at->second = parse(kNames, sets);
    } catch (const ValueError&) {
    }
  }
  return at->second;
}

// The same with what else the value goes together with: samples of the keys that its own depends
// on.
Sets beside(const keys::Section& section, const keys::ConfigKey& key, const std::string& value) {
  const Sets needed = needed_by(section, key, value);
  const auto with = [&](const Sets& more) {
    Sets sets = needed;
    sets.insert(sets.end(), more.begin(), more.end());
    return sets;
  };
  const std::string set = path_of(section, key) + "=" + value;
  if (read(with({set}))) return needed;
  for (const keys::ConfigKey& other : section.keys) {
    if (!std::ranges::count(key.traits.others, other.name)) continue;
    for (const std::string& sample : other.value.samples().good) {
      const std::string more = path_of(section, other) + "=" + sample;
      if (read(with({more, set}))) return with({more});
    }
  }
  return needed;
}

}  // namespace

TEST_CASE("every key's value arrives, is printed, loads again and counts in comparisons") {
  for_each_key(
      [](const keys::Section& section, const keys::ConfigKey& key, const std::string& path) {
        bool has_another = false;
        for (const std::string& value : key.value.samples().good) {
          Sets sets = beside(section, key, value);
          const Sets without = sets;
          sets.push_back(path + "=" + value);
          INFO(join(sets, " "));
          if (!read(sets)) (void)parse(kNames, sets);  // throws
          const Config& config = *read(sets);
          const std::string now = values_of(config).at(path);
          if (!key.value.resize) CHECK(now == value);
          const std::string text = to_yaml(config);
          const Config again = parse_config(text, "again.yaml");
          CHECK(again == config);
          CHECK(to_yaml(again) == text);
          REQUIRE(config.places.at(path).size() == 1);
          CHECK(config.places.at(path)[0].text == "--set " + sets.back());
          const std::optional<Config>& other = read(without);
          if (!other) {
            has_another = true;  // than its default, which it has not
            continue;
          }
          const bool differs = now != values_of(*other).at(path);
          CHECK((config == *other) != differs);
          has_another = has_another || differs;
        }
        INFO(path << " needs an example in its rule");
        CHECK(has_another);
      });
}

TEST_CASE("words stand for lists of a table's columns") {
  const auto value = [](const std::string& keys, const std::string& key) {
    const Config config =
        parse("model: {name: linear}\ndata: {name: csv, file: a, target: y, " + keys + "}\n");
    return values_of(config).at("data." + key);
  };
  CHECK(value("features: '*'", "features") == "[]");
  CHECK(value("features: ['*']", "features") == "[\"*\"]");
  CHECK(value("categories: auto", "categories") == "auto");
  CHECK(value("categories: [auto]", "categories") == "[auto]");
}

TEST_CASE("every key's rule refuses what breaks it") {
  for_each_key(
      [](const keys::Section& section, const keys::ConfigKey& key, const std::string& path) {
        std::vector<std::string> values = key.value.samples().bad;
        values.emplace_back("{a: 1}");
        for (const std::string& value : values) {
          Sets sets = needed_by(section, key, value);
          sets.push_back(path + "=" + value);
          const std::string message = message_of<ValueError>([&] { (void)parse(kNames, sets); });
          CHECK_THAT(message, StartsWith("--set " + sets.back() + ": " + path));
          CHECK(message.size() < 2000);
        }
      });
}

TEST_CASE("the ranges of config keys are those that pages and messages promise") {
  const std::vector<std::pair<std::string, std::string>> rules{
      {"model.hidden", "a list of integers, each from 1 to 1000000"},
      {"data.batch_size", "an integer, from 1 to 1000000000"},
      {"data.validation", "a number, at least 0 and less than 1"},
      {"data.threads", "an integer, from 0 to 64, or auto"},
      {"optimizer.lr", "a number, greater than 0"},
      {"optimizer.momentum", "a number, at least 0 and less than 1"},
      {"optimizer.betas", "a list of 2 numbers, each at least 0 and less than 1"},
      {"schedule.warmup_steps", "an integer, at least 0"},
      {"schedule.step_size", "an integer, at least 1"},
      {"schedule.pct_start", "a number, from 0 to 1"},
      {"parallel.replicas", "an integer, from 1 to 16384"},
      {"parallel.workers", "an integer, from 0 to 16384"},
      {"parallel.axis_name", "1 to 100 letters, digits and _, and begin with no digit"},
      {"parallel.timeout_s", "a number, from 0.001 to 1000000"},
      {"parallel.zero_stage", "an integer, from 0 to 3"},
      {"parallel.bucket_mb", "a number, greater than 0 and at most 1000000, or auto"},
      {"trainer.epochs", "an integer, from 1 to 1000000000"},
      {"trainer.samples", "an integer, from 1 to 1000000000000"},
      {"trainer.accumulate", "an integer, from 1 to 1000000"},
      {"trainer.clip_norm", "a number, greater than 0, or null"},
      {"trainer.ema_decay", "a number, at least 0 and less than 1, or null"},
      {"checkpoint.keep", "an integer, from 1 to 1000000"},
  };
  std::map<std::string, std::string> words;
  for_each_key([&](const auto& /*section*/, const keys::ConfigKey& key, const std::string& path) {
    words.emplace(path, key.value.words);
  });
  for (const auto& [path, rule] : rules) CHECK(words.at(path) == rule);
}

TEST_CASE("each name of an enum is that of its value") {
  const auto launch = [](const std::string& key, const std::string& name) {
    return parse(kNames, {"parallel." + key + "=" + name}).launch;
  };
  const auto zero = [](const std::string& key, const std::string& name) {
    return parse(kNames, {key + "=" + name}).zero;
  };
  CHECK(launch("launch", "processes").mode == LaunchMode::processes);
  CHECK(launch("launch", "threads").mode == LaunchMode::threads);
  CHECK(launch("backend", "auto").backend == Backend::automatic);
  CHECK(launch("backend", "gloo").backend == Backend::gloo);
  CHECK(zero("parallel.overlap", "auto").overlap == Overlap::automatic);
  CHECK(zero("parallel.overlap", "on").overlap == Overlap::on);
  CHECK(zero("parallel.overlap", "off").overlap == Overlap::off);
  CHECK(zero("parallel.compression", "none").compression == Compression::none);
  CHECK(zero("parallel.compression", "bf16").compression == Compression::bf16);
  const auto precision = [](const std::string& name) {
    return parse(kNames, {"trainer.precision=" + name}).trainer.precision;
  };
  CHECK(precision("fp32") == Precision::fp32);
  CHECK(precision("bf16") == Precision::bf16);
  CHECK(zero("trainer.non_finite", "stop").non_finite == NonFinite::stop);
  CHECK(zero("trainer.non_finite", "skip").non_finite == NonFinite::skip);
  const auto anneal = [](const std::string& name) {
    return parse(kNames, {"schedule.name=one_cycle", "schedule.anneal_strategy=" + name})
        .schedule.anneal_strategy;
  };
  CHECK(anneal("cos") == Anneal::cosine);
  CHECK(anneal("linear") == Anneal::linear);
}

TEST_CASE("the help has each key with what it is for, what may stand there and its default") {
  const std::string help = "\n" + config_help();
  for (const auto& [key, value] : values_of({})) {
    CHECK_THAT(help, ContainsSubstring("\n" + key + ": "));
  }
  for (const std::string text :
       {"\nmodel.name: the model that is trained\n    one of linear, mlp, cnn, resnet, gpt; "
        "needed\n",
        "\n    an integer, from 1 to 1000000000; default 64, of pmean_example 4\n",
        "\n    a number, greater than 0; default 1.0e-08; only for adam, adamw\n",
        "\n    an integer, from 1 to 1000000000; instead of trainer.epochs or trainer.samples\n",
        "\n    a number, greater than 0, or null; default null\n",
        "\noptimizer.groups.pattern: "}) {
    CHECK_THAT(help, ContainsSubstring(text));
  }
}

TEST_CASE("the help of a name has the keys of a config that picks it, with its defaults") {
  const auto keys_of = [](const std::string& name) {
    std::vector<std::string> names;
    std::istringstream lines(config_help(name));
    for (std::string line; std::getline(lines, line);) {
      if (!line.starts_with(' ')) names.push_back(line.substr(0, line.find(':')));
    }
    return names;
  };
  CHECK(keys_of("mlp") == Sets{"model.name", "model.hidden", "model.init_from",
                               "model.init_from_strict", "model.init_from_except"});
  CHECK(keys_of("cosine") ==
        Sets{"schedule.name", "schedule.steps", "schedule.warmup_steps", "schedule.eta_min"});
  // A model and a schedule.
  CHECK(keys_of("linear") == Sets{"model.name", "model.init_from", "model.init_from_strict",
                                  "model.init_from_except", "schedule.name", "schedule.steps",
                                  "schedule.warmup_steps", "schedule.end_factor"});
  CHECK_THAT(config_help("pmean_example"), ContainsSubstring("; default 4\n") &&
                                               !ContainsSubstring("only for") &&
                                               !ContainsSubstring(", of pmean_example"));
  // Whatever is printed for a name, a config with it may have: its value is refused, not the key.
  Config defaults;
  for (const keys::Section& section : config_table(defaults)) {
    for (const auto& [name, help] : section.choices) {
      const std::string path = section.name + ".";
      for (const std::string& key : keys_of(name)) {
        const bool is_plain = std::ranges::count(key, '.') == 1;
        if (!key.starts_with(path) || !is_plain || key == path + "name") continue;
        const Sets sets{path + "name=" + name, key + "=[[1]]"};
        INFO(join(sets, " "));
        CHECK_THAT(message_of<ValueError>([&] { (void)parse(kNames, sets); }),
                   ContainsSubstring(key + ": expected") || ContainsSubstring(key + "[0]"));
      }
    }
  }
  CHECK(keys_of("loss") ==
        Sets{"loss.name", "loss.label_smoothing", "loss.class_weights", "loss.ignore_index"});
  CHECK(config_help("AdamW") == config_help("adamw"));
  // A key, in all sections that have it.
  CHECK(keys_of("lr") == Sets{"optimizer.lr"});
  CHECK(keys_of("Optimizer.LR") == Sets{"optimizer.lr"});
  CHECK(keys_of("steps") == Sets{"schedule.steps", "trainer.steps"});
  CHECK_THAT(config_help("dropout"), StartsWith("model.dropout: ") && EndsWith("only for gpt\n"));
  const auto unknown = [](const std::string& name) {
    return message_of<ValueError>([&] { (void)config_help(name); });
  };
  CHECK_THAT(unknown("adma"),
             StartsWith("there is no model, data set, loss, optimizer, schedule, section or key "
                        "'adma' (did you mean 'adam'?); there are linear, "));
  CHECK_THAT(unknown("learning_rate"), ContainsSubstring("(did you mean 'lr'?)"));
}

}  // namespace lockstep
