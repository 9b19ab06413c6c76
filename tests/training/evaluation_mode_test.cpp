#include "framework/training/evaluation_mode.h"

#include <memory>
#include <stdexcept>

#include <c10/core/GradMode.h>
#include <torch/nn/modules/batchnorm.h>
#include <torch/nn/modules/container/modulelist.h>
#include <torch/nn/modules/linear.h>

#include "tests/catch.h"

using lockstep::training::EvaluationMode;

namespace {

struct RefusesToEvaluate : torch::nn::Module {
  void train(bool on = true) override {
    torch::nn::Module::train(on);
    if (!on) throw std::runtime_error("there is nothing to evaluate by");
  }
};

}  // namespace

TEST_CASE("evaluation mode leaves each module in its own mode, after an exception, too") {
  torch::nn::BatchNorm1d shared(3);
  torch::nn::ModuleList frozen(torch::nn::Linear(3, 3), shared);
  torch::nn::ModuleList net(shared, frozen, torch::nn::Linear(3, 2));
  frozen->eval();
  frozen[0]->train();
  const auto evaluate = [&](bool fails) {
    const EvaluationMode evaluation(*net);
    CHECK_FALSE(c10::GradMode::is_enabled());
    for (const auto& module : net->modules()) CHECK_FALSE(module->is_training());
    if (fails) throw std::runtime_error("a sample is damaged");
  };
  evaluate(false);
  CHECK_THROWS(evaluate(true));
  CHECK(c10::GradMode::is_enabled());
  CHECK(net->is_training());
  CHECK(net[2]->is_training());
  CHECK_FALSE(frozen->is_training());
  CHECK(frozen[0]->is_training());
  CHECK_FALSE(shared->is_training());
}

TEST_CASE("a module that trains, also as a part of one that does not, trains after an evaluation") {
  torch::nn::BatchNorm1d shared(3);
  torch::nn::ModuleList frozen(shared);
  torch::nn::ModuleList net(shared, frozen);
  frozen->eval();
  shared->train();
  { const EvaluationMode evaluation(*net); }
  CHECK(shared->is_training());
  CHECK_FALSE(frozen->is_training());
}

TEST_CASE("a module that evaluates already stays so, one that nobody owns, too") {
  torch::nn::LinearImpl layer(2, 2);
  layer.eval();
  { const EvaluationMode evaluation(layer); }
  CHECK_FALSE(layer.is_training());
  layer.train();
  { const EvaluationMode evaluation(layer); }
  CHECK(layer.is_training());
}

TEST_CASE("where evaluation mode cannot be entered, modes and gradients are as before") {
  torch::nn::Linear first(2, 2);
  torch::nn::BatchNorm1d frozen(2);
  torch::nn::ModuleList net(first, frozen, std::make_shared<RefusesToEvaluate>());
  frozen->eval();
  CHECK_THROWS_WITH(EvaluationMode(*net), "there is nothing to evaluate by");
  CHECK(c10::GradMode::is_enabled());
  CHECK(net->is_training());
  CHECK(first->is_training());
  CHECK(net[2]->is_training());
  CHECK_FALSE(frozen->is_training());
}
