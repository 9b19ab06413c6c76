#include "trainers/config/config.h"

#include <array>
#include <chrono>
#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "framework/base/errors.h"
#include "framework/base/text.h"
#include "framework/data/fashion_mnist.h"
#include "models/cnn.h"
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

TEST_CASE("a config that says only what it must has the documented defaults") {
  const Config config = parse(kNames);
  CHECK(config.model.name == "linear");
  CHECK(config.data_use.batch_size == 4);
  CHECK(config.data_use.shuffle);
  CHECK_FALSE(config.data_use.drop_last);
  CHECK(config.zero.optimizer.name == "sgd");
  CHECK(config.zero.optimizer.lr == 0.01);
  CHECK(config.zero.optimizer.momentum == 0);
  CHECK(config.zero.optimizer.groups.empty());
  CHECK(config.schedule == ScheduleOptions{});
  CHECK(config.launch.replicas == 1);
  CHECK(config.launch.workers == 0);
  CHECK(config.launch.mode == LaunchMode::processes);
  CHECK(config.launch.backend == Backend::automatic);
  CHECK(config.launch.axis_name == "data");
  CHECK(config.launch.threads_per_replica == 0);
  CHECK(config.launch.timeout == std::chrono::seconds(60));
  CHECK(config.trainer.epochs == 1);
  CHECK_FALSE(config.trainer.steps.has_value());
  CHECK(config.zero.seed == 0);
  CHECK_FALSE(config.zero.clip_norm.has_value());
  CHECK_FALSE(config.zero.clip_value.has_value());
  CHECK(config.trainer.log_every == 20);
  CHECK(config.trainer.eval_every == 0);

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
  CHECK(error_of("optimizer: {lrr: 1}") ==
        "c.yaml:3:13: unknown key 'lrr' in optimizer (did you mean 'lr'?)");
  CHECK(error_of("trainer: {lr: 1}") ==
        "c.yaml:3:11: unknown key 'lr' in trainer: it belongs under optimizer");
  CHECK(error_of("epochs: 3") == "c.yaml:3:1: unknown key 'epochs': it belongs under trainer");
  CHECK(error_of("trainer: {warmup: 2}") ==
        "c.yaml:3:11: unknown key 'warmup' in trainer: its keys are epochs, steps, samples, seed, "
        "accumulate, global_batch, precision, non_finite, check_every, clip_norm, clip_value, "
        "ema_decay, ema_warmup, log_every, eval_every, metrics, patience, freeze");
  CHECK(error_of("plots: {every: 3}") ==
        "c.yaml:3:1: unknown key 'plots': the sections are model, data, loss, optimizer, schedule, "
        "parallel, trainer, checkpoint");
  CHECK(error_of("trainer:\n  seed: 1\n  seed: 2") ==
        "c.yaml:5:3: duplicate key 'seed', the first is at c.yaml:4:3");
  CHECK(error_of("trainer: 3") ==
        "c.yaml:3:10: trainer: expected a map of keys (epochs, steps, samples, seed, accumulate, "
        "global_batch, precision, non_finite, check_every, clip_norm, clip_value, ema_decay, "
        "ema_warmup, log_every, "
        "eval_every, metrics, patience, freeze), found '3'");
  CHECK(error_of("optimizer: {groups: [{pattern: w, weigth_decay: 0}]}") ==
        "c.yaml:3:35: unknown key 'weigth_decay' in optimizer.groups (did you mean "
        "'weight_decay'?)");
  CHECK(error_of("optimizer: {groups: [w]}") ==
        "c.yaml:3:22: optimizer.groups: expected a map of keys (pattern, weight_decay, lr_scale), "
        "found 'w'");
  CHECK(error_of("schedule: {warmup_step: 3}") ==
        "c.yaml:3:12: unknown key 'warmup_step' in schedule (did you mean 'warmup_steps'?)");
  CHECK(error_of("optimizer: {groups: [{patern: '*.bias'}]}") ==
        "c.yaml:3:23: unknown key 'patern' in optimizer.groups (did you mean 'pattern'?)");
  CHECK(error_of("schedule: {name: step, step_sise: 3}") ==
        "c.yaml:3:24: unknown key 'step_sise' in schedule (did you mean 'step_size'?)");
  CHECK(error_of("schedule: {name: cosin}") ==
        "c.yaml:3:18: schedule.name: must be one of constant, linear, cosine, step, one_cycle, is "
        "'cosin' (did you mean 'cosine'?)");
}

TEST_CASE("keys that belong to another choice") {
  CHECK(error_of_all("model: {name: linear, hidden: [3]}\ndata: {name: pmean_example}") ==
        "c.yaml:1:23: model.hidden: belongs to model mlp, not to linear");
  CHECK(error_of_all("model: {name: cnn, hidden: [3]}\ndata: {name: pmean_example}") ==
        "c.yaml:1:20: model.hidden: belongs to model mlp, not to cnn");
  CHECK(error_of_all("model: {name: mlp, channels: [3]}\ndata: {name: pmean_example}") ==
        "c.yaml:1:20: model.channels: belongs to model cnn, not to mlp");
  CHECK(error_of_all("model: {name: linear}\ndata: {name: pmean_example, root: /data}") ==
        "c.yaml:2:29: data.root: belongs to data fashion_mnist or cifar10 or image_folder, not to "
        "pmean_example");
  CHECK(error_of("optimizer: {betas: [0.9, 0.99]}") ==
        "c.yaml:3:13: optimizer.betas: belongs to optimizer adam or adamw, not to sgd");
  CHECK(error_of("optimizer: {eps: 1e-8}") ==
        "c.yaml:3:13: optimizer.eps: belongs to optimizer adam or adamw or rmsprop or adagrad, not "
        "to sgd");
  CHECK(error_of("optimizer: {name: adam, momentum: 0.9}") ==
        "c.yaml:3:25: optimizer.momentum: belongs to optimizer sgd or rmsprop, not to adam");
  CHECK(error_of("optimizer: {name: adam, nesterov: false}") ==
        "c.yaml:3:25: optimizer.nesterov: belongs to optimizer sgd, not to adam");
  CHECK(error_of("optimizer: {name: adamw, momentum: 0.9}") ==
        "c.yaml:3:26: optimizer.momentum: belongs to optimizer sgd or rmsprop, not to adamw");
  CHECK(error_of("schedule: {eta_min: 0}") ==
        "c.yaml:3:12: schedule.eta_min: belongs to schedule cosine, not to constant");
  CHECK(error_of("schedule: {name: one_cycle, warmup_steps: 3}") ==
        "c.yaml:3:29: schedule.warmup_steps: belongs to schedule constant or linear or cosine or "
        "step, not to one_cycle");
}

TEST_CASE("every value has its rule") {
  struct Case {
    std::string line, place, message;
  };
  const std::vector<Case> cases{
      {"optimizer: {lr: 0}", "3:17", "optimizer.lr: must be greater than 0, is 0"},
      {"optimizer: {lr: fast}", "3:17", "optimizer.lr: expected a number, found 'fast'"},
      {"optimizer: {weight_decay: -0.1}", "3:27",
       "optimizer.weight_decay: must be at least 0, is -0.1"},
      {"optimizer: {momentum: 1}", "3:23",
       "optimizer.momentum: must be at least 0 and less than 1, is 1"},
      {"optimizer: {nesterov: true}", "3:13",
       "optimizer.nesterov: needs optimizer.momentum greater than 0"},
      {"optimizer: {dampening: 0.5}", "3:13",
       "optimizer.dampening: needs optimizer.momentum greater than 0"},
      {"optimizer: {nesterov: true, momentum: 0.9, dampening: 0.5}", "3:13",
       "optimizer.nesterov: needs optimizer.dampening 0"},
      {"optimizer: {nesterov: 1}", "3:23", "optimizer.nesterov: expected true or false, found '1'"},
      {"optimizer: {nesterov: true, momentum: fast}", "3:39",
       "optimizer.momentum: expected a number, found 'fast'"},
      {"optimizer: {name: adam, betas: [0.9, 1.0]}", "3:38",
       "optimizer.betas: must be at least 0 and less than 1, is 1.0"},
      {"optimizer: {name: adam, betas: [0.9]}", "3:32",
       "optimizer.betas: expected 2 numbers, found 1"},
      {"optimizer: {name: adam, eps: 0}", "3:30", "optimizer.eps: must be greater than 0, is 0"},
      {"optimizer: {groups: {pattern: w}}", "3:21",
       "optimizer.groups: expected a list of maps, found a map"},
      {"optimizer: {groups: [{lr_scale: 2}]}", "3:22",
       "optimizer.groups.pattern is missing: a pattern for parameters' names of 1 to 1000 bytes"},
      {"optimizer: {groups: [{pattern: ''}]}", "3:32",
       "optimizer.groups.pattern: must be a pattern for parameters' names of 1 to 1000 bytes, is "
       "''"},
      {"optimizer: {groups: [{pattern: a}, {pattern: b, lr_scale: -1}]}", "3:59",
       "optimizer.groups.lr_scale: must be at least 0, is -1"},
      {"optimizer: {groups: [{pattern: a, weight_decay: x}]}", "3:49",
       "optimizer.groups.weight_decay: expected a number, found 'x'"},
      {"schedule: {warmup_steps: -1}", "3:26", "schedule.warmup_steps: must be at least 0, is -1"},
      {"schedule: {name: linear, end_factor: -1}", "3:38",
       "schedule.end_factor: must be at least 0, is -1"},
      {"schedule: {name: cosine, eta_min: -1}", "3:35",
       "schedule.eta_min: must be at least 0, is -1"},
      {"schedule: {name: step}", "3:1", "schedule.step_size is missing: an integer, at least 1"},
      {"schedule: {name: step, step_size: 0}", "3:35",
       "schedule.step_size: must be at least 1, is 0"},
      {"schedule: {name: step, step_size: 5, gamma: 0}", "3:45",
       "schedule.gamma: must be greater than 0, is 0"},
      {"schedule: {name: one_cycle, pct_start: 2}", "3:40",
       "schedule.pct_start: must be from 0 to 1, is 2"},
      {"schedule: {name: one_cycle, div_factor: 0}", "3:41",
       "schedule.div_factor: must be greater than 0, is 0"},
      {"schedule: {name: one_cycle, final_div_factor: 0}", "3:47",
       "schedule.final_div_factor: must be greater than 0, is 0"},
      {"schedule: {name: one_cycle, anneal_strategy: sine}", "3:46",
       "schedule.anneal_strategy: must be one of cos, linear, is 'sine'"},
      {"parallel: {replicas: 0}", "3:22", "parallel.replicas: must be from 1 to 1024, is 0"},
      {"parallel: {replicas: 1025}", "3:22", "parallel.replicas: must be from 1 to 1024, is 1025"},
      {"parallel: {workers: -1}", "3:21", "parallel.workers: must be from 0 to 1024, is -1"},
      {"parallel: {replicas: 4, workers: 5}", "3:25",
       "parallel.workers: must be at most parallel.replicas, which is 4, or 0 for as many; is 5"},
      {"parallel: {launch: fibers}", "3:20",
       "parallel.launch: must be one of processes, threads, is 'fibers'"},
      {"parallel: {backend: mpi}", "3:21", "parallel.backend: must be one of auto, gloo, is 'mpi'"},
      {"parallel: {axis_name: 1a}", "3:23",
       "parallel.axis_name: must be 1 to 100 letters, digits and _, and begin with no digit, is "
       "'1a'"},
      {"parallel: {axis_name: ''}", "3:23",
       "parallel.axis_name: must be 1 to 100 letters, digits and _, and begin with no digit, is "
       "''"},
      {"parallel: {axis_name: größe}", "3:23",
       "parallel.axis_name: must be 1 to 100 letters, digits and _, and begin with no digit, is "
       "'größe'"},
      {"parallel: {threads_per_replica: -1}", "3:33",
       "parallel.threads_per_replica: must be from 0 to 1024, is -1"},
      {"parallel: {timeout_s: 0}", "3:23",
       "parallel.timeout_s: must be from 0.001 to 1000000, is 0"},
      {"parallel: {timeout_s: 1e7}", "3:23",
       "parallel.timeout_s: must be from 0.001 to 1000000, is 1e7"},
      {"trainer: {epochs: 0}", "3:19", "trainer.epochs: must be from 1 to 1000000000, is 0"},
      {"trainer: {epochs: null}", "3:19", "trainer.epochs: expected an integer, found nothing"},
      {"trainer: {steps: 1e3}", "3:18", "trainer.steps: expected an integer, found '1e3'"},
      {"trainer: {seed: -1}", "3:17", "trainer.seed: must be at least 0, is -1"},
      {"trainer: {clip_norm: 0}", "3:22", "trainer.clip_norm: must be greater than 0, is 0"},
      {"trainer: {clip_norm: .nan}", "3:22",
       "trainer.clip_norm: expected a finite number, found '.nan'"},
      {"trainer: {clip_value: 0}", "3:23", "trainer.clip_value: must be greater than 0, is 0"},
      {"trainer: {log_every: 0}", "3:22", "trainer.log_every: must be from 1 to 1000000000, is 0"},
      {"trainer: {eval_every: -1}", "3:23", "trainer.eval_every: must be at least 0, is -1"},
      {"trainer: {epochs: 2, steps: 3}", "3:22",
       "trainer.steps: not together with trainer.epochs (c.yaml:3:11): keep one of them"},
  };
  for (const Case& one : cases) {
    CHECK(error_of(one.line) == "c.yaml:" + one.place + ": " + one.message);
  }
  CHECK(error_of_all("model: {name: mlp, hidden: [8, 0]}\ndata: {name: pmean_example}") ==
        "c.yaml:1:32: model.hidden: must be from 1 to 1000000, is 0");
  CHECK(error_of_all("model: {name: cnn, dense: [8, 0]}\ndata: {name: pmean_example}") ==
        "c.yaml:1:31: model.dense: must be from 1 to 1000000, is 0");
  CHECK(error_of_all("model: {name: linear}\ndata: {name: pmean_example, batch_size: 4.0}") ==
        "c.yaml:2:41: data.batch_size: expected an integer, found '4.0'");
  for (const std::string size : {"0", "1000000001", "4611686018427387905"}) {
    CHECK(error_of_all("model: {name: linear}\ndata: {name: pmean_example, batch_size: " + size +
                       "}") ==
          "c.yaml:2:41: data.batch_size: must be from 1 to 1000000000, is " + size);
  }
  CHECK(parse("model: {name: linear}\ndata: {name: pmean_example, batch_size: 1000000000}")
            .data_use.batch_size == 1'000'000'000);
  CHECK(error_of_all("model: {name: linear}\ndata: {name: fashion_mnist, root: ''}") ==
        "c.yaml:2:35: data.root: must be a folder's path of 1 to 4095 bytes, is ''");
}

TEST_CASE("flags win over the file") {
  const std::string text = kNames + "trainer: {epochs: 3, clip_norm: 1}\n";
  const Config config =
      parse(text, {"trainer.steps=5", "trainer.clip_norm=null", "optimizer.name=adam",
                   "optimizer.betas=[0.9,0.99]", "parallel.replicas=2", "parallel.replicas=3"});
  CHECK(config.trainer.steps == 5);
  CHECK_FALSE(config.trainer.epochs.has_value());
  CHECK_FALSE(config.zero.clip_norm.has_value());
  CHECK(config.zero.optimizer.betas == std::array<double, 2>{0.9, 0.99});
  CHECK(config.launch.replicas == 3);
  CHECK(parse(text, {"trainer.steps=5", "trainer.steps=2"}).trainer.steps == 2);
  CHECK(parse("data: {name: pmean_example}", {"model.name=mlp"}).model.name == "mlp");
  CHECK(error_of_all(kNames, {"optimizer.lrr=1"}) ==
        "--set optimizer.lrr=1: unknown key 'lrr' in optimizer (did you mean 'lr'?)");
  CHECK_THROWS_WITH(parse_config(kNames, "c.yaml", {{"parallel.replicas", "0", "--replicas 0"}}),
                    "--replicas 0: parallel.replicas: must be from 1 to 1024, is 0");
  CHECK_THROWS_WITH(parse_config(kNames, "c.yaml",
                                 {{"parallel.workers", "3", "--workers 3"},
                                  {"parallel.replicas", "2", "--replicas 2"}}),
                    "--workers 3: parallel.workers: must be at most parallel.replicas, which is 2, "
                    "or 0 for as many; is 3");
}

TEST_CASE("flags that exclude each other are refused as in the file, whatever the file says") {
  for (const std::string& text : {kNames, kNames + "trainer: {epochs: 3}\n"}) {
    CHECK(error_of_all(text, {"trainer.steps=5", "trainer.epochs=2"}) ==
          "--set trainer.epochs=2: trainer.epochs: not together with trainer.steps (--set "
          "trainer.steps=5): keep one of them");
    CHECK(error_of_all(text, {"trainer.epochs=2", "trainer.seed=1", "trainer.steps=5"}) ==
          "--set trainer.steps=5: trainer.steps: not together with trainer.epochs (--set "
          "trainer.epochs=2): keep one of them");
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

TEST_CASE("all problems of a config are told at once, those of the flags behind the file's") {
  CHECK(error_of_all("model: {name: mlp, hidden: [0, 8, x]}\n"
                     "data: {shuffle: 3}\n"
                     "optimizer:\n"
                     "  nesterov: true\n"
                     "  momentum: 1\n"
                     "  groups: [{lr_scale: -1}, w]\n"
                     "trainer: {epochs: 2, steps: 3, sed: 4}\n"
                     "parallel: {workers: 9, launch: thread}\n",
                     {"parallel.zero_stage=4", "schedule.name=step", "optimizer.eps=0"}) ==
        "c.yaml:1:29: model.hidden: must be from 1 to 1000000, is 0\n"
        "c.yaml:1:35: model.hidden: expected an integer, found 'x'\n"
        "c.yaml:2:1: data.name is missing: one of fashion_mnist, cifar10, image_folder, csv, npy, "
        "text, synthetic, pmean_example\n"
        "c.yaml:2:17: data.shuffle: expected true or false, found '3'\n"
        "c.yaml:5:13: optimizer.momentum: must be at least 0 and less than 1, is 1\n"
        "c.yaml:6:12: optimizer.groups.pattern is missing: a pattern for parameters' names of 1 to "
        "1000 bytes\n"
        "c.yaml:6:23: optimizer.groups.lr_scale: must be at least 0, is -1\n"
        "c.yaml:6:28: optimizer.groups: expected a map of keys (pattern, weight_decay, lr_scale), "
        "found 'w'\n"
        "c.yaml:7:22: trainer.steps: not together with trainer.epochs (c.yaml:7:11): keep one of "
        "them\n"
        "c.yaml:7:32: unknown key 'sed' in trainer (did you mean 'seed'?)\n"
        "c.yaml:8:12: parallel.workers: must be at most parallel.replicas, which is 1, or 0 for as "
        "many; is 9\n"
        "c.yaml:8:32: parallel.launch: must be one of processes, threads, is 'thread' (did you "
        "mean 'threads'?)\n"
        "--set parallel.zero_stage=4: parallel.zero_stage: must be from 0 to 3, is 4\n"
        "--set schedule.name=step: schedule.step_size is missing: an integer, at least 1\n"
        "--set optimizer.eps=0: optimizer.eps: belongs to optimizer adam or adamw or rmsprop or "
        "adagrad, not to sgd");
}

TEST_CASE("a section may be written as the value of its first key, if the table says so") {
  CHECK(parse(kNames + "checkpoint: none").checkpoint.save == CheckpointOptions::Save::none);
  CHECK(parse(kNames + "checkpoint: {save: none}") == parse(kNames + "checkpoint: none"));
  CHECK(parse(kNames, {"checkpoint=none"}) == parse(kNames + "checkpoint: none"));
  CHECK_THAT(error_of("checkpoint: nothing"),
             StartsWith("c.yaml:3:13: checkpoint.save: must be one of state, none, is "));
}

TEST_CASE("of a config of thousands of problems the first twenty are told, and that quickly") {
  std::string keys;
  for (int i = 0; i < 50'000; ++i) keys += "  key" + std::to_string(i) + ": 1\n";
  CHECK_THAT(error_of("trainer:\n" + keys),
             StartsWith("c.yaml:4:3: unknown key 'key0' in trainer: its keys are epochs") &&
                 EndsWith("\nand 49980 more"));
  CHECK_THAT(error_of("trainer:\n" + keys + "  key7: 2\n  seed: 1\n  seed: x\n"),
             EndsWith("\nand 49982 more"));
}

}  // namespace lockstep
