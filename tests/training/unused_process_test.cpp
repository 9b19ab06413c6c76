#include <functional>
#include <string>
#include <vector>

#include <ATen/TensorOperators.h>
#include <ATen/ops/ones.h>
#include <torch/nn/module.h>
#include <torch/nn/modules/linear.h>

#include "framework/collectives/axis_index.h"
#include "framework/launch/launch.h"
#include "framework/training/data_parallel.h"
#include "framework/training/zero.h"
#include "tests/catch.h"
#include "tests/support/ended.h"
#include "tests/support/programs.h"

using namespace lockstep;
using namespace lockstep::testing;

namespace {

// Has 'never', on which no loss depends; 'some', which replica 1 leaves out; and 'late', which
// replica 2 leaves out from the third step on.
class Forgetful : public torch::nn::Module {
 public:
  Forgetful() { register_parameter("never", at::ones({2})); }
  at::Tensor loss(std::int64_t step) {
    at::Tensor sum = always_.sum();
    if (axis_index("data") != 1) sum = sum + some_.sum();
    if (axis_index("data") != 2 || step < 3) sum = sum + late_.sum();
    return sum;
  }
  // A microbatch that leaves out more than the other one of its step.
  at::Tensor short_loss() { return always_.sum(); }

 private:
  at::Tensor always_ = register_parameter("always", at::ones({3}));
  at::Tensor some_ = register_parameter("some", at::ones({1}));
  at::Tensor late_ = register_parameter("late", at::ones({5}));
};

// The lines on stderr with these words.
template <typename Model>
std::vector<std::string> lines_of_training(const std::string& words,
                                           const std::function<void(Model&)>& train) {
  const Ended end = run_forked([&] {
    return launch(
        [&] {
          Model model;
          train(model);
        },
        {.replicas = 3});
  });
  require_status(end, 0);
  return lines_with(words, end.err);
}

std::vector<std::string> warnings(const std::function<void(Forgetful&)>& train) {
  return lines_of_training<Forgetful>("does not depend on", train);
}

// Has a layer that it has not registered, a constant, and a frozen one.
class Unregistered : public torch::nn::Module {
 public:
  at::Tensor loss() { return (layer_->forward(at::ones({1, 3})) * own_ * frozen_ * two_).sum(); }

 private:
  torch::nn::Linear layer_{3, 2};
  at::Tensor own_ = register_parameter("own", at::ones({2}));
  at::Tensor frozen_ = register_parameter("frozen", at::ones({2}), /*requires_grad=*/false);
  at::Tensor two_ = at::ones({2}) * 2;
};

}  // namespace

TEST_CASE("parameters without a gradient are named once by a job") {
  const std::vector<std::string> expected{
      "lockstep: warning: the loss does not depend on 'never': the optimizer leaves it as is (said "
      "once)",
      "lockstep: warning: the loss does not depend on 'some' (on 1 of 3 replicas): a gradient of "
      "zeros there (said once)",
      "lockstep: warning: the loss does not depend on 'late' (on 1 of 3 replicas): a gradient of "
      "zeros there (said once)"};
  CHECK(warnings([](Forgetful& model) {
          ZeroTrainer trainer(model, {.stage = 1, .accumulate = 2});
          for (std::int64_t step = 1; step < 6; ++step) {
            trainer.backward(model.loss(step));
            trainer.backward(model.short_loss());
            trainer.step(0.01);
          }
        }) == expected);
  CHECK(warnings([](Forgetful& model) {
          DataParallel parallel(model, "data");
          for (std::int64_t step = 1; step < 6; ++step) {
            for (const at::Tensor& parameter : model.parameters()) parameter.mutable_grad().reset();
            parallel.backward(model.loss(step));
          }
        }) == expected);
}

TEST_CASE("parameters that the module has not registered are told once by a job") {
  const std::vector<std::string> expected{
      "lockstep: warning: the loss depends on 2 tensors that require a gradient, but are no "
      "parameters of the module, and so not trained: Float (2), Float (2, 3); if they should "
      "be, register_module() or register_parameter() is missing (said once)"};
  const std::string words = "the loss depends on";
  CHECK(lines_of_training<Unregistered>(words, [](Unregistered& model) {
          ZeroTrainer trainer(model, {.stage = 1, .accumulate = 2});
          for (int backward = 0; backward < 4; ++backward) {
            trainer.backward(model.loss());
            if (backward % 2 == 1) trainer.step(0.01);
          }
        }) == expected);
  CHECK(lines_of_training<Unregistered>(words, [](Unregistered& model) {
          DataParallel parallel(model, "data");
          for (int step = 0; step < 2; ++step) {
            model.parameters()[0].mutable_grad().reset();
            parallel.backward(model.loss());
          }
        }) == expected);
  // Those of another trainer are trained.
  CHECK(lines_of_training<Unregistered>(words, [](Unregistered& model) {
          Forgetful other;
          ZeroTrainer trainer(model, {});
          ZeroTrainer others(other, {});
          trainer.backward(other.loss(1) + model.parameters()[0].sum());
        }).empty());
}
