#include <algorithm>
#include <set>
#include <sstream>
#include <string>
#include <vector>

#include "framework/base/errors.h"
#include "framework/base/text.h"
#include "tests/catch.h"
#include "tests/support/message_of.h"
#include "trainers/config/config.h"

namespace lockstep {
namespace {

using Catch::Matchers::StartsWith;
using testing::message_of;

using Sets = std::vector<std::string>;  // "section.key=value" each

// Values that a key takes, none of which is its default, and one that it refuses.
struct Sample {
  std::string key;
  std::vector<std::string> good;
  std::string bad;
  Sets with = {};          // what must be set beside it
  bool is_needed = false;  // there is no config with these and without it
};

const Sets kImageFolder{"data.name=image_folder", "data.root=pictures"};
const Sets kCsv{"data.name=csv", "data.file=train.csv", "data.target=target"};
const Sets kNpy{"data.name=npy", "data.inputs=inputs.npy", "data.targets=targets.npy"};
const Sets kText{"data.name=text", "data.path=text"};
const Sets kSynthetic{"data.name=synthetic"};

const std::vector<Sample> kSamples{
    {"model.name", {"mlp", "cnn"}, "gru"},
    {"model.hidden", {"[7, 8]", "[]"}, "[8, 0]", {"model.name=mlp"}},
    {"model.channels", {"[7, 8]"}, "3", {"model.name=cnn"}},
    {"model.dense", {"[1000000]"}, "[1000001]", {"model.name=cnn"}},
    {"model.layers", {"3", "1000"}, "1001", {"model.name=gpt"}},
    {"model.heads", {"3"}, "0", {"model.name=gpt"}},
    {"model.width", {"3"}, "2049", {"model.name=resnet"}},
    {"model.depth", {"8", "1202"}, "1208", {"model.name=resnet"}},
    {"model.stochastic_depth", {"0.5"}, "2", {"model.name=resnet"}},
    {"model.recompute", {"true"}, "1", {"model.name=gpt"}},
    {"model.dropout", {"0.5"}, "1.5", {"model.name=gpt"}},
    {"model.init_from", {"weights.safetensors"}, "''"},
    {"model.init_from_strict", {"false"}, "1", {"model.init_from=weights.safetensors"}},
    {"data.name", {"fashion_mnist"}, "mnist"},
    {"data.root", {"/images"}, "''", {"data.name=fashion_mnist"}},
    {"data.batch_size", {"64", "1"}, "0"},
    {"data.shuffle", {"false"}, "0"},
    {"data.drop_last", {"true"}, "1"},
    {"data.validation", {"0.5"}, "1"},
    {"data.threads", {"0", "3"}, "65"},
    {"data.crop", {"3"}, "-1", {"data.name=fashion_mnist"}},
    {"data.flip", {"true"}, "1", {"data.name=fashion_mnist"}},
    {"data.height", {"32"}, "0", kImageFolder},
    {"data.width", {"32"}, "10001", kImageFolder},
    {"data.channels", {"1"}, "2", kImageFolder},
    {"data.mean", {"[0.5]", "[0.5, 0.25, 0]"}, "[2]", kImageFolder},
    {"data.deviation", {"[0.5]"}, "[0]", kImageFolder},
    {"data.exif", {"false"}, "0", kImageFolder},
    {"data.crop_rounding", {"down"}, "up", kImageFolder},
    {"data.cache", {"true"}, "1", kImageFolder},
    {"data.on_damaged", {"skip"}, "warn", kImageFolder},
    {"data.file", {"a.csv"}, "''", {"data.name=csv", "data.target=y"}, true},
    {"data.validation_file", {"a.csv"}, "''", kCsv},
    {"data.test_file", {"a.csv"}, "''", kCsv},
    {"data.target", {"price", "[a, b]"}, "[a, '']", {"data.name=csv", "data.file=a.csv"}, true},
    {"data.features", {"[a, b]"}, "a", kCsv},
    {"data.separator", {"\";\""}, "::", kCsv},
    {"data.task", {"classification"}, "ranking", kCsv},
    {"data.missing_values", {"[x, unknown]", "[]"}, "x", kCsv},
    {"data.normalize", {"false"}, "0", kCsv},
    {"data.normalize_targets", {"true"}, "1", kCsv},
    {"data.inputs", {"x.npy"}, "''", {"data.name=npy", "data.targets=y.npy"}, true},
    {"data.targets", {"y.npy"}, "''", {"data.name=npy", "data.inputs=x.npy"}, true},
    {"data.validation_inputs", {"x.npy"}, "''", kNpy},
    {"data.validation_targets", {"y.npy"}, "''", kNpy},
    {"data.test_inputs", {"x.npy"}, "''", kNpy},
    {"data.test_targets", {"y.npy"}, "''", kNpy},
    {"data.classes", {"3"}, "0", kNpy},
    {"data.task", {"regression", "classification"}, "ranking", kNpy},
    {"data.path", {"texts"}, "''", {"data.name=text"}, true},
    {"data.validation_path", {"texts"}, "''", kText},
    {"data.test_path", {"texts"}, "''", kText},
    {"data.exclude", {"[a, \"*.dat\"]"}, "['']", kText},
    {"data.held_out", {"[a, \"*.dat\"]"}, "['']", kText},
    {"data.context", {"8"}, "0", kText},
    {"data.every_byte", {"true"}, "1", kText},
    {"data.samples", {"8"}, "0", kSynthetic},
    {"data.validation_samples", {"8"}, "-1", kSynthetic},
    {"data.test_samples", {"0"}, "-1", kSynthetic},
    {"data.features", {"8", "1000000"}, "0", kSynthetic},
    {"data.features", {"8"}, "1000000", {"data.name=synthetic", "data.outputs=11"}},
    {"data.outputs", {"8"}, "0", kSynthetic},
    {"data.classes", {"8"}, "1", kSynthetic},
    {"data.noise", {"0.5"}, "-1", kSynthetic},
    {"loss.name", {"cross_entropy", "mean_squared_error"}, "hinge"},
    {"loss.label_smoothing", {"0.5"}, "1", {"loss.name=cross_entropy"}},
    {"loss.class_weights", {"[0.5, 2]"}, "[-1]", {"loss.name=cross_entropy"}},
    {"loss.ignore_index", {"-100", "3"}, "0.5", {"loss.name=cross_entropy"}},
    {"optimizer.name", {"adam", "adamw"}, "lion"},
    {"optimizer.lr", {"0.5"}, "0"},
    {"optimizer.momentum", {"0.5"}, "1"},
    {"optimizer.dampening", {"0.5"}, "2", {"optimizer.momentum=0.5"}},
    {"optimizer.nesterov", {"true"}, "1", {"optimizer.momentum=0.5"}},
    {"optimizer.betas", {"[0.5, 0]"}, "[0.5]", {"optimizer.name=adam"}},
    {"optimizer.eps", {"0.5"}, "0", {"optimizer.name=adamw"}},
    {"optimizer.amsgrad", {"true"}, "1", {"optimizer.name=adam"}},
    {"optimizer.momentum", {"0.5"}, "1", {"optimizer.name=rmsprop"}},
    {"optimizer.alpha", {"0.5"}, "1", {"optimizer.name=rmsprop"}},
    {"optimizer.centered", {"true"}, "1", {"optimizer.name=rmsprop"}},
    {"optimizer.eps", {"0.5"}, "0", {"optimizer.name=adagrad"}},
    {"optimizer.lr_decay", {"0.5"}, "-1", {"optimizer.name=adagrad"}},
    {"optimizer.initial_accumulator_value", {"0.5"}, "-1", {"optimizer.name=adagrad"}},
    {"optimizer.weight_decay", {"0.5"}, "-1"},
    {"optimizer.groups",
     {"[{pattern: w}]", "[{pattern: w, weight_decay: 0.5, lr_scale: 2}, {pattern: b}]"},
     "[w]"},
    {"schedule.name", {"linear", "cosine", "one_cycle"}, "exponential"},
    {"schedule.steps", {"3"}, "0", {"schedule.name=cosine"}},
    {"schedule.warmup_steps", {"3"}, "-1"},
    {"schedule.end_factor", {"0.5"}, "-1", {"schedule.name=linear"}},
    {"schedule.eta_min", {"0.5"}, "-1", {"schedule.name=cosine"}},
    {"schedule.step_size", {"3"}, "0", {"schedule.name=step"}, true},
    {"schedule.gamma", {"0.5"}, "0", {"schedule.name=step", "schedule.step_size=3"}},
    {"schedule.pct_start", {"0", "1"}, "1.5", {"schedule.name=one_cycle"}},
    {"schedule.div_factor", {"2"}, "0", {"schedule.name=one_cycle"}},
    {"schedule.final_div_factor", {"2"}, "0", {"schedule.name=one_cycle"}},
    {"schedule.anneal_strategy", {"linear"}, "cosine", {"schedule.name=one_cycle"}},
    {"parallel.replicas", {"1024"}, "1025"},
    {"parallel.workers", {"1"}, "2"},
    {"parallel.launch", {"threads"}, "fibers"},
    {"parallel.axis_name", {"batch"}, "2d"},
    {"parallel.backend", {"gloo"}, "mpi"},
    {"parallel.threads_per_replica", {"3"}, "-1"},
    {"parallel.timeout_s", {"0.001", "2.3", "1000000"}, "1000001"},
    {"parallel.stall_warn_s", {"0", "2.3", "1000000"}, "-1"},
    {"parallel.link", {"\"5 ms, 12.5 MB/s\""}, "fast"},
    {"parallel.allow_mixed", {"true"}, "1"},
    {"parallel.zero_stage", {"1", "2", "3"}, "4"},
    {"parallel.bucket_mb", {"0.5", "1000000"}, "0"},
    {"parallel.overlap", {"\"on\"", "\"off\""}, "yes"},
    {"parallel.compression", {"bf16"}, "fp16"},
    {"parallel.reduce_every_microbatch", {"true"}, "1"},
    {"trainer.epochs", {"3"}, "0"},
    {"trainer.steps", {"3"}, "null"},
    {"trainer.samples", {"3"}, "0"},
    {"trainer.seed", {"18446744073709551615"}, "-1"},
    {"trainer.accumulate", {"3"}, "1000001"},
    {"trainer.global_batch", {"3", "4"}, "0"},
    {"trainer.precision", {"bf16"}, "fp16"},
    {"trainer.non_finite", {"skip"}, "go on"},
    {"trainer.check_every", {"3"}, "-1"},
    {"trainer.clip_norm", {"0.5"}, "0"},
    {"trainer.clip_value", {"0.5"}, "0"},
    {"trainer.ema_decay", {"0.5"}, "1"},
    {"trainer.ema_warmup", {"false"}, "0"},
    {"trainer.log_every", {"3"}, "0"},
    {"trainer.eval_every", {"3"}, "-1"},
    {"trainer.metrics", {"[accuracy]", "[loss, top_3]"}, "['']"},
    {"trainer.patience", {"3"}, "0"},
    {"trainer.freeze", {"[b]", "[b, \"*.bias\"]"}, "['']"},
    {"checkpoint.save", {"none"}, "all"},
    {"checkpoint.every", {"3"}, "-1"},
    {"checkpoint.keep", {"1"}, "0"},
    {"checkpoint.async", {"false"}, "0"},
    {"checkpoint.on_error", {"warn"}, "skip"},
    {"checkpoint.best", {"loss", "accuracy"}, "''"},
};

Config config_with(const Sets& sets) {
  std::vector<keys::Override> overrides;
  for (const std::string& argument : sets) overrides.push_back(keys::parse_set(argument));
  return parse_config("model: {name: linear}\ndata: {name: pmean_example}\n", "c.yaml", overrides);
}

}  // namespace

TEST_CASE("every key of the table has its sample here") {
  std::set<std::string> sampled, known;
  for (const Sample& sample : kSamples) sampled.insert(sample.key);
  for (const auto& [key, value] : values_of({})) known.insert(key);
  CHECK(sampled == known);
}

TEST_CASE("every key's value arrives, is printed, loads again and counts in comparisons") {
  for (const Sample& sample : kSamples) {
    Config unlike = config_with(sample.is_needed ? Sets() : sample.with);
    for (const std::string& good : sample.good) {
      Sets sets = sample.with;
      sets.push_back(sample.key + "=" + good);
      INFO(join(sets, " "));
      const Config config = config_with(sets);
      const std::string value = values_of(config).at(sample.key);
      if (sample.key != "optimizer.groups") CHECK(value == good);
      CHECK_FALSE(config == unlike);
      unlike = config;
      const Config again = parse_config(to_yaml(config), "again.yaml");
      CHECK(again == config);
      CHECK(to_yaml(again) == to_yaml(config));
      REQUIRE(config.places.at(sample.key).size() == 1);
      CHECK(config.places.at(sample.key)[0].text == "--set " + sample.key + "=" + good);
    }
  }
}

TEST_CASE("what a key was before its default changed is written as it is printed") {
  for (const Sample& sample : kSamples) {
    if (sample.is_needed) continue;  // a needed key has no default
    Config config = config_with(sample.with);
    for (const keys::Section& section : config_table(config)) {
      for (const keys::ConfigKey& key : section.keys) {
        if (section.name + "." + key.name != sample.key || key.traits.before.empty()) continue;
        Sets sets = sample.with;
        sets.push_back(sample.key + "=" + key.traits.before);
        CHECK(values_of(config_with(sets)).at(sample.key) == key.traits.before);
      }
    }
  }
}

TEST_CASE("a record of before a default of data changed keeps what it was read by") {
  const auto value = [](const std::string& data, const std::string& key) {
    return values_of(parse_recorded_config("model: {name: linear}\ndata: " + data + "\n", "record"))
        .at("data." + key);
  };
  CHECK(value("{name: image_folder, root: a}", "exif") == "false");
  CHECK(value("{name: image_folder, root: a}", "crop_rounding") == "down");
  CHECK(value("{name: csv, file: a, target: y}", "missing_values") == "[]");
}

TEST_CASE("every key's rule refuses what breaks it") {
  for (const Sample& sample : kSamples) {
    Sets sets = sample.with;
    const std::string set = sample.key + "=" + sample.bad;
    sets.push_back(set);
    const std::string message = message_of<ValueError>([&] { (void)config_with(sets); });
    CHECK_THAT(message, StartsWith("--set " + set + ": " + sample.key + ": "));
    CHECK(message.find('\n') == std::string::npos);
  }
}

TEST_CASE("each name of an enum is that of its value") {
  const auto launch = [](const std::string& key, const std::string& name) {
    return config_with({"parallel." + key + "=" + name}).launch;
  };
  const auto zero = [](const std::string& key, const std::string& name) {
    return config_with({key + "=" + name}).zero;
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
    return config_with({"trainer.precision=" + name}).trainer.precision;
  };
  CHECK(precision("fp32") == Precision::fp32);
  CHECK(precision("bf16") == Precision::bf16);
  CHECK(zero("trainer.non_finite", "stop").non_finite == NonFinite::stop);
  CHECK(zero("trainer.non_finite", "skip").non_finite == NonFinite::skip);
  const auto anneal = [](const std::string& name) {
    return config_with({"schedule.name=one_cycle", "schedule.anneal_strategy=" + name})
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
  CHECK(keys_of("mlp") ==
        Sets{"model.name", "model.hidden", "model.init_from", "model.init_from_strict"});
  CHECK(keys_of("cosine") ==
        Sets{"schedule.name", "schedule.steps", "schedule.warmup_steps", "schedule.eta_min"});
  // A model and a schedule.
  CHECK(keys_of("linear") == Sets{"model.name", "model.init_from", "model.init_from_strict",
                                  "schedule.name", "schedule.steps", "schedule.warmup_steps",
                                  "schedule.end_factor"});
  CHECK_THAT(config_help("pmean_example"), ContainsSubstring("; default 4\n") &&
                                               !ContainsSubstring("only for") &&
                                               !ContainsSubstring(", of pmean_example"));
  // Whatever is printed for a name, a config with it may have: its value is refused, not the key.
  for (const auto& [section, choices] : config_choices()) {
    for (const auto& [name, help] : choices) {
      for (const std::string& key : keys_of(name)) {
        const bool is_plain = std::ranges::count(key, '.') == 1;
        if (!key.starts_with(section + ".") || !is_plain || key == section + ".name") continue;
        const Sets sets{section + ".name=" + name, key + "=[[1]]"};
        INFO(join(sets, " "));
        CHECK_THAT(message_of<ValueError>([&] { (void)config_with(sets); }),
                   ContainsSubstring(key + ": expected") || ContainsSubstring(key + "[0]"));
      }
    }
  }
  CHECK_THAT(message_of<ValueError>([] { (void)config_help("adma"); }),
             StartsWith("there is no model, data set, loss, optimizer or schedule 'adma' (did you "
                        "mean 'adam'?); there are linear, "));
}

}  // namespace lockstep
