#include <chrono>
#include <cmath>
#include <cstdint>
#include <random>
#include <string>
#include <vector>

#include "framework/data/fashion_mnist.h"
#include "framework/optim/optimizers.h"
#include "models/cnn.h"
#include "models/mlp.h"
#include "tests/catch.h"
#include "tests/trainers/parsed_config.h"
#include "trainers/config/config.h"

namespace lockstep {
namespace {

using testing::kNames;
using testing::parse;

// Any config that a file can say, with numbers from all over their range.
class RandomConfig {
 public:
  explicit RandomConfig(unsigned seed) : random_(seed) {}

  Config operator()() {
    Config config;
    config.model.name = pick({"linear", "mlp", "cnn"});
    if (config.model.name == "mlp") {
      config.model.options<MlpOptions>().hidden.resize(below(4));
      for (std::int64_t& width : config.model.options<MlpOptions>().hidden)
        width = 1 + below(1000000);
    }
    if (config.model.name == "cnn") {
      config.model.options<CnnOptions>().channels.resize(below(4));
      for (std::int64_t& width : config.model.options<CnnOptions>().channels)
        width = 1 + below(1000000);
      config.model.options<CnnOptions>().dense.resize(below(4));
      for (std::int64_t& width : config.model.options<CnnOptions>().dense)
        width = 1 + below(1000000);
    }
    config.data.name = pick({"pmean_example", "fashion_mnist"});
    if (config.data.name == "fashion_mnist") {
      config.data.options<FashionMnistOptions>().root = pick({"x", "/", ".", "3"}) + letters();
    }
    config.data_use.batch_size = 1 + static_cast<std::int64_t>(below(1'000'000'000));
    config.data_use.shuffle = coin();
    config.data_use.drop_last = coin();
    if (coin()) config.data_use.validation = unit();
    if (coin()) config.data_use.threads = static_cast<std::int64_t>(below(65));
    config.loss.name = pick({"auto", "cross_entropy", "mean_squared_error"});
    optimizer(config.zero.optimizer);
    schedule(config.schedule);
    config.launch.replicas = 1 + static_cast<std::int64_t>(below(1024));
    config.launch.workers = static_cast<std::int64_t>(below(config.launch.replicas + 1));
    config.launch.mode = static_cast<LaunchMode>(below(2));
    config.launch.backend = static_cast<Backend>(below(2));
    config.launch.axis_name = pick({"data", "_a1", "TRUE", "null", "n", "e1"});
    config.launch.threads_per_replica = static_cast<std::int64_t>(below(1025));
    config.launch.timeout = std::chrono::milliseconds(1 + below(1000000000));
    config.zero.stage = static_cast<int>(below(4));
    if (coin()) config.zero.bucket_mb = unit() * 1e6;
    config.zero.overlap = static_cast<Overlap>(below(3));
    config.zero.compression = static_cast<Compression>(below(2));
    config.zero.reduce_every_microbatch = coin();
    config.launch.hosts.link = pick({"auto", "0.21 ms, 117 MB/s"});
    config.launch.hosts.allow_mixed = coin();
    const std::size_t unit_of_length = below(3);
    config.trainer.epochs.reset();
    const auto length = static_cast<std::int64_t>(1 + below(1000000000));
    if (unit_of_length == 0) config.trainer.epochs = length;
    if (unit_of_length == 1) config.trainer.steps = length;
    if (unit_of_length == 2) config.trainer.samples = length;
    config.zero.seed = random_();
    config.zero.accumulate = 1 + static_cast<std::int64_t>(below(1'000'000));
    config.trainer.precision = static_cast<Precision>(below(2));
    config.zero.non_finite = static_cast<NonFinite>(below(2));
    config.trainer.check_every = positive() - 1;
    if (coin()) config.zero.clip_norm = any_positive();
    if (coin()) config.zero.clip_value = any_positive();
    config.trainer.log_every = 1 + below(1000000000);
    config.trainer.eval_every = positive() - 1;
    config.checkpoint = {
        .save = coin() ? CheckpointOptions::Save::state : CheckpointOptions::Save::none,
        .every = positive() - 1,
        .keep = static_cast<std::int64_t>(1 + below(1'000'000)),
        .async = coin(),
        .on_error = coin() ? CheckpointOptions::OnError::stop : CheckpointOptions::OnError::warn,
        .best = pick({"none", "loss", "accuracy"})};
    return config;
  }

 private:
  void optimizer(OptimizerOptions& options) {
    options.name = pick({"sgd", "adam", "adamw", "rmsprop", "adagrad"});
    options.lr = any_positive();
    options.weight_decay = coin() ? 0 : any_positive();
    if (options.name == "sgd") {
      options.momentum = coin() ? 0 : unit();
      if (options.momentum > 0 && coin()) options.dampening = unit();
      options.nesterov = options.momentum > 0 && options.dampening == 0 && coin();
    } else if (options.name == "rmsprop") {
      options.own.of<RMSpropOptions>("rmsprop") = {.alpha = 1 - unit(),
                                                   .eps = any_positive(),
                                                   .momentum = coin() ? 0 : 1 - unit(),
                                                   .centered = coin()};
    } else if (options.name == "adagrad") {
      options.own.of<AdagradOptions>("adagrad") = {.lr_decay = coin() ? 0 : any_positive(),
                                                   .eps = any_positive()};
    } else {
      options.betas = {1 - unit(), 1 - unit()};
      options.eps = any_positive();
      options.amsgrad = coin();
    }
    options.groups.resize(below(3));
    for (ParameterGroup& group : options.groups) {
      group.pattern = pick({"*.bias", "norm?.*", "[a-c]*", "fc1.weight", "null", "3"}) + letters();
      if (coin()) group.weight_decay = coin() ? 0 : any_positive();
      group.lr_scale = coin() ? 0 : any_positive();
    }
  }

  void schedule(ScheduleOptions& options) {
    options.name = pick({"constant", "linear", "cosine", "step", "one_cycle"});
    const bool has_end = options.name != "constant" && options.name != "step";
    if (has_end && coin()) options.steps = 1 + static_cast<std::int64_t>(below(1000));
    if (options.name != "one_cycle") options.warmup_steps = positive() - 1;
    if (options.name == "linear") options.end_factor = coin() ? 0 : any_positive();
    if (options.name == "cosine") options.eta_min = coin() ? 0 : any_positive();
    if (options.name == "step") {
      options.step_size = positive();
      options.gamma = any_positive();
    }
    if (options.name == "one_cycle") {
      options.pct_start = coin() ? 1 : unit();
      options.div_factor = any_positive();
      options.final_div_factor = any_positive();
      options.anneal_strategy = static_cast<Anneal>(below(2));
    }
  }

  std::uint64_t below(std::uint64_t end) { return random_() % end; }
  bool coin() { return below(2) == 0; }
  std::string pick(const std::vector<std::string>& words) { return words[below(words.size())]; }
  std::int64_t positive() { return 1 + static_cast<std::int64_t>(random_() >> (1 + below(63))); }
  // In (0, 1), and never so near to 0 or 1 that the difference from one rounds away.
  double unit() { return static_cast<double>(1 + (random_() >> 12)) / 4503599627370497.0; }
  double any_positive() { return std::ldexp(unit(), static_cast<int>(below(1900)) - 1000); }
  std::string letters() {
    const std::string all = "ab/ :#'\"\\\t\n-,[]{}&*!%@~\x01\x7fé";
    std::string text;
    for (std::uint64_t i = below(12); i > 0; --i) text += all[below(all.size() - 2)];
    return text + (coin() ? "é/" : "");
  }

  std::mt19937_64 random_;
};

}  // namespace

TEST_CASE("the resolved config lists every key that applies, in order") {
  CHECK(to_yaml(parse(kNames + "trainer: {steps: 1}")) ==
        "model:\n"
        "  name: linear\n"
        "  init_from: null\n"
        "  init_from_strict: true\n"
        "data:\n"
        "  name: pmean_example\n"
        "  batch_size: 4\n"
        "  shuffle: true\n"
        "  drop_last: false\n"
        "  validation: 0\n"
        "  threads: auto\n"
        "loss:\n"
        "  name: auto\n"
        "optimizer:\n"
        "  name: sgd\n"
        "  lr: 0.01\n"
        "  momentum: 0\n"
        "  dampening: 0\n"
        "  nesterov: false\n"
        "  weight_decay: 0\n"
        "  groups: []\n"
        "schedule:\n"
        "  name: constant\n"
        "  warmup_steps: 0\n"
        "parallel:\n"
        "  replicas: 1\n"
        "  workers: 0\n"
        "  launch: processes\n"
        "  axis_name: data\n"
        "  backend: auto\n"
        "  threads_per_replica: 0\n"
        "  timeout_s: 60\n"
        "  stall_warn_s: 15\n"
        "  link: auto\n"
        "  allow_mixed: false\n"
        "  zero_stage: 0\n"
        "  bucket_mb: auto\n"
        "  overlap: auto\n"
        "  compression: none\n"
        "  reduce_every_microbatch: false\n"
        "trainer:\n"
        "  steps: 1\n"
        "  seed: 0\n"
        "  accumulate: 1\n"
        "  precision: fp32\n"
        "  non_finite: stop\n"
        "  check_every: 0\n"
        "  clip_norm: null\n"
        "  clip_value: null\n"
        "  ema_decay: null\n"
        "  ema_warmup: true\n"
        "  log_every: 20\n"
        "  eval_every: 0\n"
        "  metrics: []\n"
        "  patience: null\n"
        "  freeze: []\n"
        "checkpoint:\n"
        "  save: state\n"
        "  every: 0\n"
        "  keep: 3\n"
        "  async: true\n"
        "  on_error: stop\n"
        "  best: none\n");
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
  const unsigned seed = std::random_device{}();
  INFO("seed " << seed);
  RandomConfig random_config(seed);
  for (int i = 0; i < 500; ++i) {
    const Config config = random_config();
    const std::string text = to_yaml(config);
    INFO(text);
    const Config again = parse(text);
    REQUIRE(again == config);
    REQUIRE(to_yaml(again) == text);
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

TEST_CASE("configs that differ in one value are not equal") {
  const Config config;
  Config other = config;
  CHECK(other == config);
  other.trainer.metrics = {"accuracy"};
  CHECK_FALSE(other == config);
  other = config;
  other.data_use.batch_size = 3;
  CHECK_FALSE(other == config);
  other = config;
  other.zero.clip_norm = 1;
  CHECK_FALSE(other == config);
  other = config;
  other.schedule.warmup_steps = 1;
  CHECK_FALSE(other == config);
}

}  // namespace lockstep
