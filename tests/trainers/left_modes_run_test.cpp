// Modes and flags that callbacks leave in the model.

#include <functional>
#include <map>
#include <memory>
#include <string>

#include <ATen/TensorOperators.h>
#include <ATen/ops/linear.h>
#include <c10/core/GradMode.h>
#include <torch/nn/modules/dropout.h>
#include <torch/nn/modules/linear.h>

#include "models/model.h"
#include "tests/catch.h"
#include "tests/data/made_set.h"
#include "tests/support/captured_stderr.h"
#include "tests/support/occurrences.h"
#include "tests/support/temporary_folder.h"
#include "tests/trainers/runs.h"

using namespace lockstep;
using namespace lockstep::testing;

namespace {

struct DroppingModel : Model {
  explicit DroppingModel(const SampleType& sample)
      : first(register_module("first", torch::nn::Linear(sample.input.values(), 8))),
        drop(register_module("drop", torch::nn::Dropout(0.5))),
        last(register_module("last", torch::nn::Linear(8, sample.outputs()))) {}
  at::Tensor forward(const at::Tensor& inputs) override { return last(drop(first(inputs))); }
  torch::nn::Linear first;
  torch::nn::Dropout drop;
  torch::nn::Linear last;
};

struct Trained {
  std::string digest;
  std::string log;
};

Trained trained_with(const Callbacks& callbacks) {
  static const bool is_registered = [] {
    register_model(
        model_kind("dropping", "with dropout", [](const SampleType& sample, const Key& key) {
          return seeded(key.bits(), [&] { return std::make_shared<DroppingModel>(sample); });
        }));
    return true;
  }();
  (void)is_registered;
  const Config config = parse_config(
      "model: {name: dropping}\ndata: {name: pmean_example, batch_size: 3}\n"
      "parallel: {replicas: 2}\ntrainer: {steps: 6, eval_every: 2}\n",
      "test");
  const auto samples = made_set({.size = 13, .make = [](const MadeSample& sample) {
                                   sample.input.fill_(static_cast<double>(sample.index) / 10);
                                   sample.target.copy_(3 * sample.input - 1);
                                 }});
  const TemporaryFolder folder;
  const CapturedStderr captured;
  train_in_map(config, {.train = samples, .validation = samples},
               {.output = folder.path() / "run", .callbacks = callbacks});
  return {read_json(folder.path() / "run/result.json")["parameters_sha256"], captured.text()};
}

}  // namespace

TEST_CASE("what a callback leaves in the model's modes and flags is set back, with a warning") {
  const std::string clean = trained_with({}).digest;
  const std::map<std::string, std::function<void(Trainer&)>> leaves{
      {"the model in evaluation mode", [](Trainer& trainer) { trainer.model().eval(); }},
      {"'drop' in evaluation mode",
       [](Trainer& trainer) { trainer.model().named_modules("", false)["drop"]->eval(); }},
      {"'last.bias' without requires_grad",
       [](Trainer& trainer) {
         trainer.model().named_parameters()["last.bias"].set_requires_grad(false);
       }},
      {"GradMode changed", [](Trainer&) { c10::GradMode::set_enabled(false); }}};
  for (const auto& [what, leave] : leaves) {
    const auto check = [&](const std::string& name, const Callbacks& callbacks) {
      const Trained trained = trained_with(callbacks);
      INFO(what << " by " << name << ": " << trained.log);
      CHECK(count(trained.log, "the callback " + name + " has left " + what) == 1);
      CHECK(trained.digest == clean);
    };
    check("after_step", {.after_step = [&](Trainer& trainer, const StepEnd&) { leave(trainer); }});
    check("after_evaluation",
          {.after_evaluation = [&](Trainer& trainer, const Evaluation&) { leave(trainer); }});
  }
  const Trained whole =
      trained_with({.before_first_step = leaves.at("the model in evaluation mode")});
  CHECK(count(whole.log, "the callback before_first_step has left the model") == 1);
  CHECK(whole.digest == clean);
  const Trained part = trained_with({.before_first_step = leaves.at("'drop' in evaluation mode")});
  CHECK(count(part.log, "the callback") == 0);
  CHECK(part.digest != clean);
}
