// Loops of one's own whose model is left in evaluation mode.

#include <functional>
#include <string>

#include <ATen/TensorOperators.h>
#include <ATen/ops/ones.h>
#include <torch/nn/modules/batchnorm.h>
#include <torch/nn/modules/dropout.h>
#include <torch/nn/modules/linear.h>

#include "framework/maps/pmap.h"
#include "framework/training/data_parallel.h"
#include "tests/catch.h"
#include "tests/support/captured_stderr.h"
#include "tests/support/occurrences.h"
#include "tests/training/zero_jobs.h"

using namespace lockstep;
using namespace lockstep::testing;

namespace {

struct Dropping : torch::nn::Module {
  Tensor loss() { return last(drop(norm(first(at::ones({4, 3}))))).square().mean(); }
  torch::nn::Linear first = register_module("first", torch::nn::Linear(3, 3));
  torch::nn::BatchNorm1d norm = register_module("norm", torch::nn::BatchNorm1d(3));
  torch::nn::Dropout drop = register_module("drop", torch::nn::Dropout(0.5));
  torch::nn::Linear last = register_module("last", torch::nn::Linear(3, 1));
};

// Returns the warnings of three steps, before each of which `change` is called with the number of
// the step.
std::string said(const std::function<void(Dropping&, int)>& change, bool trains_zero) {
  const CapturedStderr captured;
  pmap(
      [&] {
        const auto model = seeded(3, [] { return std::make_shared<Dropping>(); });
        change(*model, -1);  // before the trainer is made
        if (trains_zero) {
          ZeroTrainer trainer(*model, {.axis_name = "i", .local_batch_norm = true});
          for (int step = 0; step < 3; ++step) {
            change(*model, step);
            trainer.backward(model->loss());
            trainer.step(0.1);
          }
        } else {
          DataParallel parallel(*model, "i", {.local_batch_norm = true});
          for (int step = 0; step < 3; ++step) {
            change(*model, step);
            model->loss().backward();
          }
        }
      },
      {.axis_size = 2})();
  return captured.text();
}

}  // namespace

TEST_CASE("a model that is left in evaluation mode is warned of once") {
  for (const bool trains_zero : {false, true}) {
    const auto warnings = [&](const std::function<void(Dropping&, int)>& change,
                              const std::string& name) {
      return count(said(change, trains_zero),
                   "the program has left " + name + " in evaluation mode");
    };
    CHECK(warnings([](Dropping& model, int step) { model.train(step < 1); }, "the model") == 1);
    CHECK(warnings(
              [](Dropping& model, int step) {
                if (step == 0) model.eval();
              },
              "the model") == 1);
    CHECK(warnings([](Dropping& model, int step) { model.drop->train(step < 2); }, "'drop'") == 1);
    // A part that is to stay in evaluation mode, from the start or from before the first step.
    for (const int first : {-1, 0}) {
      const auto freeze = [&](Dropping& model, int step) {
        if (step > 0) model.eval();
        if (step > 0) model.train();
        if (step >= first) model.norm->eval();
      };
      CHECK(count(said(freeze, trains_zero), "the program has left") == 0);
    }
  }
}
