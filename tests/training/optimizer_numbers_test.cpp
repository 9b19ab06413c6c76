#include <algorithm>
#include <cmath>
#include <limits>
#include <memory>
#include <string>

#include <ATen/TensorOperators.h>
#include <ATen/ops/full.h>
#include <ATen/ops/zeros.h>
#include <torch/nn/module.h>
#include <torch/nn/utils/clip_grad.h>
#include <torch/optim/adamw.h>
#include <torch/optim/sgd.h>

#include "framework/base/errors.h"
#include "framework/collectives/axis_index.h"
#include "tests/catch.h"
#include "tests/support/message_of.h"
#include "tests/training/placements.h"
#include "tests/training/zero_jobs.h"

// What a step makes of its numbers, beside LibTorch's optimizers and clipping in float64.

using namespace lockstep;
using namespace lockstep::testing;

namespace {

class Pair : public torch::nn::Module {
 public:
  at::Tensor a = register_parameter("a", at::full({5}, 2.0, at::kDouble));
  at::Tensor b = register_parameter("b", at::full({3}, -1.0, at::kDouble));
};

// Depends on b in every second step only.
at::Tensor sometimes(const Pair& model, int step) {
  const at::Tensor loss = model.a.square().sum();
  return step % 2 == 0 ? loss : loss + model.b.pow(3).sum();
}

ZeroOptions of(const std::string& optimizer, int stage) {
  ZeroOptions options{.stage = stage, .optimizer = {.name = optimizer, .weight_decay = 0.1}};
  if (optimizer == "sgd") options.optimizer.momentum = 0.9;
  return options;
}

}  // namespace

TEST_CASE("a parameter that a step's losses do not depend on is skipped as PyTorch skips it") {
  const auto expected = [](const std::string& optimizer) {
    Pair model;
    std::unique_ptr<torch::optim::Optimizer> reference;
    if (optimizer == "sgd") {
      reference = std::make_unique<torch::optim::SGD>(
          model.parameters(), torch::optim::SGDOptions(0.1).momentum(0.9).weight_decay(0.1));
    } else {
      reference = std::make_unique<torch::optim::AdamW>(
          model.parameters(), torch::optim::AdamWOptions(0.1).weight_decay(0.1));
    }
    for (int step = 0; step < 7; ++step) {
      for (const at::Tensor& parameter : model.parameters()) parameter.mutable_grad().reset();
      sometimes(model, step).backward();
      reference->step();
    }
    return copies(model);
  };
  for (const std::string optimizer : {"sgd", "adamw"}) {
    const Parameters right = expected(optimizer);
    in_every_placement(3, [&] {
      for (const int stage : {0, 1, 2, 3}) {
        Pair model;
        ZeroTrainer trainer(model, of(optimizer, stage));
        for (int step = 0; step < 7; ++step) {
          trainer.backward(sometimes(model, step));
          (void)trainer.step(0.1);
        }
        for (const auto& [name, value] : right) {
          expect(model.named_parameters()[name].allclose(value, 1e-12, 0), optimizer + " " + name);
        }
      }
    });
  }
}

TEST_CASE("clipping is PyTorch's, also where squares are too large for float64") {
  for (const double size : {3.0, 1e-3, 1e200}) {
    Pair plain;
    (plain.a.sum() * size).backward();
    plain.b.mutable_grad() = at::zeros({3}, at::kDouble);
    const double norm = size * std::sqrt(5.0);
    const at::Tensor right = plain.a.detach() - size * std::min(1.0, 1 / (norm + 1e-6));
    in_every_placement(3, [&] {
      for (const int stage : {0, 1, 2, 3}) {
        Pair model;
        ZeroTrainer trainer(model, {.stage = stage, .optimizer = {.name = "sgd"}, .clip_norm = 1});
        trainer.backward(model.a.sum() * size);
        const StepReport report = trainer.step(1);
        expect(!report.skipped, report.reason);
        expect(std::abs(report.gradient_norm / norm - 1) < 1e-14,
               "norm " + std::to_string(report.gradient_norm));
        expect(model.a.allclose(right, 1e-14, 0), "a");
      }
    });
  }
}

TEST_CASE("a learning rate that differs on one replica is an error with both values") {
  in_every_placement(3, [] {
    for (const int stage : {0, 1}) {
      Pair model;
      ZeroTrainer trainer(model, of("sgd", stage));
      trainer.backward(model.a.sum());
      const std::string message =
          message_of<ValueError>([&] { (void)trainer.step(axis_index("data") == 1 ? 0.5 : 0.25); });
      expect_contains(message, "ZeroTrainer::step over 'data' (optimizer_numbers_test.cpp:");
      expect_contains(message, "the learning rate is 0.25 on replica 0 and 0.5 on replica 1");
    }
    Pair model;
    ZeroTrainer trainer(model, of("sgd", 0));
    trainer.backward(model.a.sum());
    expect_contains(message_of<ValueError>(
                        [&] { (void)trainer.step(std::numeric_limits<double>::infinity()); }),
                    "the learning rate is inf");
  });
}
