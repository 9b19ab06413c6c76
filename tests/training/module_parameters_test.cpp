#include "framework/training/module_parameters.h"

#include <memory>

#include <ATen/ops/linear.h>
#include <ATen/ops/tanh.h>

#include "framework/base/errors.h"
#include "framework/collectives/axis_index.h"
#include "framework/training/block.h"
#include "tests/catch.h"
#include "tests/support/message_of.h"
#include "tests/training/zero_jobs.h"

using namespace lockstep;
using namespace lockstep::testing;

namespace {

class Layer : public Block {
 public:
  explicit Layer(double first) {
    weight_ = register_parameter("weight",
                                 at::arange(25, at::kFloat).add(first).sin().view({5, 5}).mul(0.4));
  }
  at::Tensor forward(const at::Tensor& values) override {
    return at::tanh(at::linear(values, weight_));
  }

 private:
  at::Tensor weight_;
};

// Two layers, of which the first is registered under two names and runs twice.
class TiedModel : public torch::nn::Module {
 public:
  TiedModel() {
    tied_ = register_module("first", std::make_shared<Layer>(0.0));
    middle_ = register_module("middle", std::make_shared<Layer>(9.0));
    register_module("again", tied_);
  }
  at::Tensor forward(const at::Tensor& inputs) { return (*tied_)((*middle_)((*tied_)(inputs))); }

 private:
  std::shared_ptr<Layer> tied_;
  std::shared_ptr<Layer> middle_;
};

class Nested : public Block {
 public:
  Nested() { inner_ = register_module("inner", std::make_shared<Layer>(0.0)); }
  at::Tensor forward(const at::Tensor& values) override { return (*inner_)(values); }

 private:
  std::shared_ptr<Layer> inner_;
};

Parameters trained(const ZeroOptions& options) {
  TiedModel model;
  ZeroTrainer trainer(model, options);
  for (std::int64_t step = 0; step < 4; ++step) {
    const at::Tensor inputs = samples(step, 2 * axis_index(options.axis_name), 2).inputs;
    trainer.backward(model.forward(inputs).pow(2).sum());
    trainer.step(kRate);
  }
  const auto whole = trainer.whole_parameters();
  return copies(model);
}

}  // namespace

TEST_CASE("a block under two names is one, whose parameters count once") {
  TiedModel model;
  const training::ModuleParameters found = training::module_parameters(model);
  CHECK(found.blocks.size() == 2);
  CHECK(found.names.size() == 2);
  CHECK(found.block_of == std::vector<std::int64_t>{1, 2});
}

TEST_CASE("a block that runs twice is trained at stage 3 as at stage 0") {
  const Quiet quiet;
  const auto result = [](int stage) {
    return result_of_job(threads(3, Backend::gloo), [&] { return trained(adam(stage)); });
  };
  CHECK(first_difference(result(3), result(0)) == "");
}

TEST_CASE("a block inside another is refused") {
  Nested model;
  CHECK(message_of<ValueError>([&] { (void)training::module_parameters(model); }) ==
        "a Block must not be inside another");
}
