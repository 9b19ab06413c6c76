#include <functional>
#include <string>
#include <vector>

#include <ATen/TensorOperators.h>
#include <ATen/ops/ones.h>
#include <torch/nn/module.h>

#include "framework/collectives/axis_index.h"
#include "framework/replicas/launch.h"
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

std::vector<std::string> warnings(const std::function<void(Forgetful&)>& train) {
  const Ended end = run_forked([&] {
    return launch(
        [&] {
          Forgetful model;
          train(model);
        },
        {.replicas = 3});
  });
  require_status(end, 0);
  return lines_with("does not depend on", end.err);
}

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
