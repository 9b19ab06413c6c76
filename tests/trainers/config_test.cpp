#include "trainers/config/config.h"

#include <array>
#include <chrono>
#include <cstdint>
#include <string>
#include <vector>

#include "framework/base/errors.h"
#include "framework/data/fashion_mnist.h"
#include "models/mlp.h"
#include "tests/catch.h"
#include "tests/support/message_of.h"
#include "tests/trainers/parsed_config.h"

namespace lockstep {
namespace {

using Catch::Matchers::EndsWith;
using Catch::Matchers::StartsWith;
using testing::kNames;
using testing::message_of;
using testing::parse;

// The message for a config whose third line is `line`, after the names that are required.
std::string error_of(const std::string& line) {
  return message_of<ValueError>([&] { (void)parse(kNames + line); });
}

std::string error_of_all(const std::string& text, const std::vector<std::string>& sets = {}) {
  return message_of<ValueError>([&] { (void)parse(text, sets); });
}

}  // namespace

TEST_CASE("a config's defaults are those of what it picks") {
  CHECK(parse(kNames).data_use.batch_size == 4);
  CHECK(parse(kNames).schedule == ScheduleOptions{});
  const Config mlp = parse("model: {name: mlp}\ndata: {name: fashion_mnist}");
  CHECK(mlp.model.options<MlpOptions>().hidden == std::vector<std::int64_t>{1024, 1024});
  CHECK(mlp.data_use.batch_size == 64);
  CHECK(values_of(mlp).at("data.root") == kFashionMnistRoot);
}

TEST_CASE("a config's values arrive") {
  const Config config = parse(
      "model: {name: mlp, hidden: [7, 8, 9]}\n"
      "data: {name: fashion_mnist, root: /data/fashion mnist, batch_size: 32, shuffle: no}\n"
      "optimizer: {name: adam, lr: 1.0e-3, betas: [0.8, 0.99], eps: 1e-7, weight_decay: 0.1}\n"
      "parallel: {replicas: 8, workers: 3, launch: threads, axis_name: batch, backend: gloo, "
      "threads_per_replica: 2, "
      "timeout_s: 2.5}\n"
      "trainer: {steps: 100, seed: 18446744073709551615, clip_norm: 1, clip_value: 0.25, "
      "log_every: 5, eval_every: 10}\n");
  CHECK(config.model.options<MlpOptions>().hidden == std::vector<std::int64_t>{7, 8, 9});
  CHECK(config.data.options<FashionMnistOptions>().root == "/data/fashion mnist");
  CHECK(config.data_use.batch_size == 32);
  CHECK_FALSE(config.data_use.shuffle);
  CHECK(config.zero.optimizer.name == "adam");
  CHECK(config.zero.optimizer.lr == 0.001);
  CHECK(config.zero.optimizer.betas == std::array<double, 2>{0.8, 0.99});
  CHECK(config.zero.optimizer.eps == 1e-7);
  CHECK(config.zero.optimizer.weight_decay == 0.1);
  CHECK(config.launch.replicas == 8);
  CHECK(config.launch.workers == 3);
  CHECK(config.launch.mode == LaunchMode::threads);
  CHECK(config.launch.backend == Backend::gloo);
  CHECK(config.launch.axis_name == "batch");
  CHECK(config.launch.threads_per_replica == 2);
  CHECK(config.launch.timeout == std::chrono::milliseconds(2500));
  CHECK_FALSE(config.trainer.epochs.has_value());
  CHECK(config.trainer.steps == 100);
  CHECK(config.zero.seed == 18446744073709551615U);
  CHECK(config.zero.clip_norm == 1.0);
  CHECK(config.zero.clip_value == 0.25);
  CHECK(config.trainer.log_every == 5);
  CHECK(config.trainer.eval_every == 10);

  const Config sgd = parse(kNames + "optimizer: {momentum: 0.9, nesterov: true}");
  CHECK(sgd.zero.optimizer.momentum == 0.9);
  CHECK(sgd.zero.optimizer.nesterov);
}

TEST_CASE("parameter groups and schedules arrive") {
  const Config adamw = parse(kNames +
                             "optimizer:\n"
                             "  name: adamw\n"
                             "  betas: [0.8, 0.99]\n"
                             "  groups:\n"
                             "    - {pattern: \"*.bias\", weight_decay: 0}\n"
                             "    - {pattern: head.*, lr_scale: 0.1}\n"
                             "schedule: {name: cosine, warmup_steps: 100, eta_min: 1e-5}\n");
  CHECK(adamw.zero.optimizer.betas == std::array<double, 2>{0.8, 0.99});
  REQUIRE(adamw.zero.optimizer.groups.size() == 2);
  CHECK(adamw.zero.optimizer.groups[0] == ParameterGroup{.pattern = "*.bias", .weight_decay = 0.0});
  CHECK(adamw.zero.optimizer.groups[1] == ParameterGroup{.pattern = "head.*", .lr_scale = 0.1});
  CHECK(adamw.schedule == ScheduleOptions{.name = "cosine", .warmup_steps = 100, .eta_min = 1e-5});
  CHECK(parse(kNames + "schedule: {name: linear, end_factor: 0.5}").schedule ==
        ScheduleOptions{.name = "linear", .end_factor = 0.5});
  CHECK(parse(kNames + "schedule: {name: step, step_size: 30, gamma: 0.5}").schedule ==
        ScheduleOptions{.name = "step", .step_size = 30, .gamma = 0.5});
  const Config one_cycle =
      parse(kNames +
            "schedule: {name: one_cycle, pct_start: 0.4, div_factor: 10, final_div_factor: 100, "
            "anneal_strategy: linear}");
  CHECK(one_cycle.schedule == ScheduleOptions{.name = "one_cycle",
                                              .pct_start = 0.4,
                                              .div_factor = 10,
                                              .final_div_factor = 100,
                                              .anneal_strategy = Anneal::linear});
  const Config flags = parse(kNames, {"optimizer.groups=[{pattern: w}]"});
  REQUIRE(flags.zero.optimizer.groups.size() == 1);
  CHECK(flags.zero.optimizer.groups[0] == ParameterGroup{.pattern = "w"});
  const auto places = [](const Config& config) {
    std::vector<std::string> texts;
    for (const auto& place : config.places.at("optimizer.groups.pattern")) {
      texts.push_back(place.text);
    }
    return texts;
  };
  CHECK(places(flags) == std::vector<std::string>{"--set optimizer.groups=[{pattern: w}]"});
  CHECK(places(adamw) == std::vector<std::string>{"c.yaml:7:8", "c.yaml:8:8"});
}

TEST_CASE("model and data must be named") {
  CHECK(parse("data: {name: pmean_example}", {"model.name=mlp"}).model.name == "mlp");
  CHECK_THAT(error_of_all("data: {name: pmean_example}"),
             ContainsSubstring("c.yaml:1:1: model.name is missing: one of "));
  CHECK_THAT(error_of_all("model: {name: linear}\ndata: {shuffle: true}"),
             ContainsSubstring("c.yaml:2:1: data.name is missing: one of "));
  CHECK_THAT(error_of_all("data: {name: pmean_example}\nmodle: {name: linear}"),
             ContainsSubstring("c.yaml:2:1: unknown key 'modle' (did you mean 'model'?)"));
  CHECK_THAT(error_of_all("model: {name: lineal}\ndata: {name: pmean_example}"),
             ContainsSubstring("c.yaml:1:15: model.name: must be one of "));
  CHECK_THAT(error_of_all("model: {name: lineal}\ndata: {name: pmean_example}"),
             ContainsSubstring("is 'lineal' (did you mean 'linear'?)"));
  CHECK_THAT(error_of("optimizer: {name: adamm}"),
             ContainsSubstring("c.yaml:3:19: optimizer.name: must be one of "));
}

TEST_CASE("keys that are not known, or not here") {
  CHECK(error_of("trainer: {lr: 1}") ==
        "c.yaml:3:11: unknown key 'lr' in trainer: it belongs under optimizer");
  CHECK(error_of("plots: {every: 3}") ==
        "c.yaml:3:1: unknown key 'plots': the sections are model, data, loss, optimizer, schedule, "
        "parallel, trainer, checkpoint, telemetry");
  CHECK(error_of("optimizer: {groups: [{pattern: w, weigth_decay: 0}]}") ==
        "c.yaml:3:35: unknown key 'weigth_decay' in optimizer.groups (did you mean "
        "'weight_decay'?)");
  CHECK(error_of("optimizer: {groups: [w]}") ==
        "c.yaml:3:22: optimizer.groups: expected a map of keys (pattern, weight_decay, lr_scale), "
        "found 'w'");
  // What seems to be meant is not told as missing.
  CHECK(error_of("optimizer: {groups: [{patern: '*.bias'}]}") ==
        "c.yaml:3:23: unknown key 'patern' in optimizer.groups (did you mean 'pattern'?)");
  CHECK(error_of("schedule: {name: step, step_sise: 3}") ==
        "c.yaml:3:24: unknown key 'step_sise' in schedule (did you mean 'step_size'?)");
}

TEST_CASE("keys and values as other programs call them are told by their names here") {
  const auto told = [](const std::string& line, const std::string& end) {
    INFO(line);
    CHECK_THAT(error_of(line), EndsWith(end));
  };
  const std::string lr = "(did you mean 'lr'?)";
  told("learning_rate: 0.1", lr + ": it belongs under optimizer");
  told("optimizer: {learning_rate: 0.1}", lr);
  told("trainer: {max_epochs: 3}", "(did you mean 'epochs'?)");
  told("trainer: {lr_scheduler: cosine}",
       "(did you mean 'schedule'?): it is a section of its own, at the top level");
  told("trainer: {num_workers: 2}", "(did you mean 'threads'?): it belongs under data");
  told("trainer: {devices: 2}", "(did you mean 'replicas'?): it belongs under parallel");
  told("trainer: {warmup: 3}", "(did you mean 'warmup_steps'?): it belongs under schedule");
  told("optimizer: {warmup: 3}", "(did you mean 'warmup_steps'?): it belongs under schedule");
  told("loss: {weight: [1, 2]}", "unknown key 'weight' in loss (did you mean 'class_weights'?)");
  told("trainer: {ckpt_path: a}", "(did you mean 'init_from'?): it belongs under model");
  told("trainer: {monitor: f1}", "(did you mean 'best'?): it belongs under checkpoint");
  told("schedule: {name: cosine, T_max: 3}", "(did you mean 'steps'?)");
  const auto told_of_data = [](const std::string& keys, const std::string& meant) {
    CHECK_THAT(error_of_all("model: linear\ndata: {name: " + keys + "}"),
               EndsWith("in data (did you mean '" + meant + "'?)"));
  };
  told_of_data("csv, file: a, target: y, sep: x", "separator");
  told_of_data("csv, file: a, target: y, na_values: [x]", "missing_values");
  told_of_data("image_folder, root: a, image_size: 8", "height");
  told_of_data("image_folder, root: a, grayscale: true", "channels");
  told_of_data("cifar10, augment: true", "crop");
  CHECK_THAT(error_of_all("model: {name: linear, weights: a}\ndata: pmean_example"),
             EndsWith("unknown key 'weights' in model (did you mean 'init_from'?)"));
  // What only looks like a key elsewhere, here data.test_path, is no advice.
  CHECK_THAT(error_of("trainer: {best_path: a}"),
             ContainsSubstring("unknown key 'best_path' in trainer: its keys are "));
  told("criterion: mse", "(did you mean 'loss'?)");
  told("loss: mse", "(did you mean 'mean_squared_error'?)");
  told("loss: CrossEntropyLoss", "(did you mean 'cross_entropy'?)");
  told("optimizer: AdamW", "(did you mean 'adamw'?)");
  told("trainer: {metrics: rmse}", "expected a list of strings, found 'rmse'; write [rmse]");
  told("checkpoint: {best: null}",
       "checkpoint.best: expected a string, none or a metric's name, of 1 to 100 bytes, found "
       "nothing");
  told("parallel: {compression: null}", "expected one of none, bf16, found nothing");
  told("trainer: {clip_norm: none}", "expected a number, found 'none'; or write null");
  told("trainer: {eval_every: null}",
       "trainer.eval_every: expected an integer, found nothing; it may be 0");
  told("trainer: {log_every: null}", "expected an integer, found nothing");
  told("parallel: {bucket_mb: null}", "expected a number, found nothing; or write auto");
  told("loss: {class_weights: balanced}",
       "loss.class_weights: 'balanced' is not known: write a number for each class, [0.7, 1.9], "
       "such as samples / (classes * samples of the class)");
  CHECK_THAT(error_of_all("model: {name: gpt, hidden_size: 8}\ndata: text"),
             ContainsSubstring("'hidden_size' in model (did you mean 'width'?)"));
  CHECK_THAT(error_of_all("model: {name: mlp, hidden_size: 8}\ndata: pmean_example"),
             EndsWith("'hidden_size' in model (did you mean 'hidden'?)"));
}

TEST_CASE("keys that belong to another choice") {
  CHECK(error_of_all("model: {name: linear, hidden: [3]}\ndata: {name: pmean_example}") ==
        "c.yaml:1:23: model.hidden: belongs to model mlp, not to linear");
  CHECK(error_of("optimizer: {betas: [0.9, 0.99]}") ==
        "c.yaml:3:13: optimizer.betas: belongs to optimizer adam or adamw, not to sgd");
  CHECK(error_of("optimizer: {name: adam, momentum: 0.9}") ==
        "c.yaml:3:25: optimizer.momentum: belongs to optimizer sgd or rmsprop, not to adam");
  CHECK_THAT(
      error_of("schedule: {name: one_cycle, warmup_steps: 3}"),
      StartsWith("c.yaml:3:29: schedule.warmup_steps: belongs to schedule constant or linear "
                 "or cosine or step"));
}

TEST_CASE("values must go together") {
  struct Case {
    std::string line, place, message;
  };
  const std::vector<Case> cases{
      {"optimizer: {nesterov: true}", "3:13",
       "optimizer.nesterov: needs optimizer.momentum greater than 0"},
      {"optimizer: {dampening: 0.5}", "3:13",
       "optimizer.dampening: needs optimizer.momentum greater than 0"},
      {"optimizer: {nesterov: true, momentum: 0.9, dampening: 0.5}", "3:13",
       "optimizer.nesterov: needs optimizer.dampening 0"},
      {"optimizer: {groups: [{lr_scale: 2}]}", "3:22",
       "optimizer.groups.pattern is missing: a pattern for parameters' names of 1 to 1000 bytes"},
      {"optimizer: {groups: [{pattern: a}, {pattern: b, lr_scale: -1}]}", "3:59",
       "optimizer.groups.lr_scale: must be at least 0, is -1"},
      {"schedule: {name: step}", "3:1", "schedule.step_size is missing: an integer, at least 1"},
      {"parallel: {replicas: 4, workers: 5}", "3:25",
       "parallel.workers: must be at most parallel.replicas, which is 4, or 0 for as many; is 5"},
      {"parallel: {replicas: 2}\ntrainer: {global_batch: 3}", "4:11",
       "trainer.global_batch: must be a multiple of parallel.replicas, which is 2; is 3"},
      {"trainer: {epochs: 2, steps: 3}", "3:22",
       "trainer.steps: not together with trainer.epochs (c.yaml:3:11): keep one of them"},
  };
  for (const Case& one : cases) {
    CHECK(error_of(one.line) == "c.yaml:" + one.place + ": " + one.message);
  }
}

TEST_CASE("values of any length make short messages") {
  const std::string digits(100'000, '1');
  const std::string letters(100'000, 'a');
  for (const std::string& line :
       {"trainer: {steps: " + digits + "}", "parallel: {replicas: " + digits + "}",
        "parallel: {axis_name: " + letters + "}", "parallel: {launch: " + letters + "}",
        "optimizer: {groups: [{pattern: " + letters + "}]}", letters + ": 1",
        "trainer:\n  ? " + letters + "\n  : 1"}) {
    const std::string message = error_of(line);
    CHECK(message.size() < 400);
    CHECK_THAT(message, StartsWith("c.yaml:"));
  }
  CHECK_THAT(
      error_of_all("model: {name: linear}\ndata: {name: fashion_mnist, root: " + letters + "}"),
      StartsWith("c.yaml:2:35: data.root: must be a folder's path"));
  CHECK(error_of_all(kNames, {"trainer.steps=" + digits}).size() < 400);
  CHECK(error_of_all(kNames, {letters + "=1"}).size() < 400);
  CHECK(message_of<ValueError>([&] { (void)keys::parse_set(letters); }).size() < 400);
}

TEST_CASE("a section may be written as the value of its first key, if the table says so") {
  CHECK(parse(kNames + "checkpoint: none").checkpoint.save == CheckpointOptions::Save::none);
  CHECK(parse(kNames + "checkpoint: {save: none}") == parse(kNames + "checkpoint: none"));
  CHECK(parse(kNames, {"checkpoint=none"}) == parse(kNames + "checkpoint: none"));
  CHECK(parse("model: mlp\ndata: pmean_example\noptimizer: adam\nschedule: cosine\nloss: auto") ==
        parse("model: {name: mlp}\ndata: {name: pmean_example}\noptimizer: {name: adam}\n"
              "schedule: {name: cosine}"));
  CHECK(parse(kNames, {"optimizer=adam", "optimizer.lr=0.5"}) ==
        parse(kNames + "optimizer: {name: adam, lr: 0.5}"));
  CHECK_THAT(error_of_all("model: MLP\ndata: pmean_example"),
             StartsWith("c.yaml:1:8: model.name: must be one of linear, mlp, ") &&
                 EndsWith(", is 'MLP' (did you mean 'mlp'?)"));
  CHECK(error_of("schedule: [cosine]") ==
        "c.yaml:3:11: schedule: expected one of constant, linear, cosine, step, one_cycle, or a "
        "map of keys (name, steps, warmup_steps, end_factor, eta_min, step_size, gamma, pct_start, "
        "div_factor, final_div_factor and 1 more), found a list");
  CHECK_THAT(error_of("checkpoint: nothing"),
             StartsWith("c.yaml:3:13: checkpoint.save: must be one of state, none, is "));
}

}  // namespace lockstep
