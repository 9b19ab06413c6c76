#include "trainers/run/evaluate.h"

#include <functional>
#include <memory>

#include <ATen/Functions.h>

#include "tests/catch.h"
#include "tests/trainers/parsed_config.h"

namespace lockstep {
namespace {

class Same : public Model {
 public:
  at::Tensor forward(const at::Tensor& inputs) override { return inputs; }
};

// Of as many guesses of a value as the model gives.
class Distance final : public Loss {
 public:
  at::Tensor mean(const at::Tensor& outputs, const at::Tensor& targets) const override {
    return (outputs - targets).abs().mean();
  }
};

}  // namespace

TEST_CASE("a training's loss is told in the file's unit where outputs are as the targets") {
  const Config config = testing::parse(testing::kNames);
  const Objective objective{
      .loss = std::make_shared<Distance>(), .metrics = {}, .scales = {{100, 20}}};
  const at::Tensor targets = at::tensor({1.0F, 2.0F}).view({2, 1});
  const auto loss = [&](const at::Tensor& outputs) {
    Same model;
    return training_loss(config, objective, model, {outputs, targets}, {});
  };
  const BatchLoss one = loss(at::zeros({2, 1}));
  CHECK(one.trained.item<double>() == 1.5);
  CHECK(one.told.item<double>() == 30);
  // A loss of one's own may take others, of which nobody knows the unit.
  const BatchLoss three = loss(at::zeros({2, 3}));
  CHECK(three.trained.item<double>() == 1.5);
  CHECK(three.told.item<double>() == 1.5);
}

}  // namespace lockstep
