#include <cstdint>
#include <memory>
#include <tuple>
#include <vector>

#include <ATen/Functions.h>
#include <ATen/TensorOperators.h>
#include <torch/optim/adagrad.h>
#include <torch/optim/adam.h>
#include <torch/optim/adamw.h>
#include <torch/optim/rmsprop.h>
#include <torch/optim/sgd.h>

#include "framework/optim/optimizers.h"
#include "tests/catch.h"
#include "tests/optim/slices.h"
#include "tests/support/settings.h"

namespace lockstep {
namespace {

using testing::random_values;
using testing::whole;

constexpr int kSteps = 100;

std::unique_ptr<torch::optim::Optimizer> torch_optimizer(const OptimizerOptions& options,
                                                         const at::Tensor& parameter) {
  const std::vector<at::Tensor> parameters{parameter};
  const auto betas = std::make_tuple(options.betas[0], options.betas[1]);
  if (options.name == "sgd") {
    return std::make_unique<torch::optim::SGD>(parameters, torch::optim::SGDOptions(options.lr)
                                                               .momentum(options.momentum)
                                                               .dampening(options.dampening)
                                                               .nesterov(options.nesterov)
                                                               .weight_decay(options.weight_decay));
  }
  if (options.name == "adam") {
    return std::make_unique<torch::optim::Adam>(parameters,
                                                torch::optim::AdamOptions(options.lr)
                                                    .betas(betas)
                                                    .eps(options.eps)
                                                    .amsgrad(options.amsgrad)
                                                    .weight_decay(options.weight_decay));
  }
  if (options.name == "rmsprop") {
    const auto own = options.own.of<RMSpropOptions>("rmsprop");
    return std::make_unique<torch::optim::RMSprop>(parameters,
                                                   torch::optim::RMSpropOptions(options.lr)
                                                       .alpha(own.alpha)
                                                       .eps(own.eps)
                                                       .momentum(own.momentum)
                                                       .centered(own.centered)
                                                       .weight_decay(options.weight_decay));
  }
  if (options.name == "adagrad") {
    const auto own = options.own.of<AdagradOptions>("adagrad");
    return std::make_unique<torch::optim::Adagrad>(
        parameters, torch::optim::AdagradOptions(options.lr)
                        .lr_decay(own.lr_decay)
                        .initial_accumulator_value(own.initial_accumulator_value)
                        .eps(own.eps)
                        .weight_decay(options.weight_decay));
  }
  return std::make_unique<torch::optim::AdamW>(parameters, torch::optim::AdamWOptions(options.lr)
                                                               .betas(betas)
                                                               .eps(options.eps)
                                                               .amsgrad(options.amsgrad)
                                                               .weight_decay(options.weight_decay));
}

OptimizerOptions rmsprop(RMSpropOptions own, double weight_decay = 0) {
  OptimizerOptions options{.name = "rmsprop", .lr = 0.01, .weight_decay = weight_decay};
  options.own.of<RMSpropOptions>("rmsprop") = own;
  return options;
}

OptimizerOptions adagrad(AdagradOptions own, double weight_decay = 0) {
  OptimizerOptions options{.name = "adagrad", .lr = 0.1, .weight_decay = weight_decay};
  options.own.of<AdagradOptions>("adagrad") = own;
  return options;
}

// The largest difference of a value after 100 steps of both, in units of `epsilon` of the largest
// value. A gradient has a part that stays and one that changes, so that momentum matters.
double difference(const OptimizerOptions& options, at::ScalarType dtype, double epsilon) {
  constexpr std::int64_t kCount = 259;
  const Key key(testing::seed());
  const at::Tensor start = random_values(kCount, key.fold(1), dtype);
  const at::Tensor stays = random_values(kCount, key.fold(2), dtype);
  const at::Tensor theirs = start.clone().requires_grad_();
  const auto torch = torch_optimizer(options, theirs);
  const auto ours = make_optimizer(options);
  OptimizerSlice slice = whole(*ours, start.clone(), {});
  for (int step = 1; step <= kSteps; ++step) {
    const auto number = static_cast<std::uint64_t>(step);
    slice.gradient = stays + random_values(kCount, key.fold(3).fold(number), dtype);
    theirs.mutable_grad() = slice.gradient.clone();
    torch->step();
    ours->update(slice, {.step = step, .lr = options.lr, .weight_decay = options.weight_decay});
  }
  const double apart = (slice.parameter - theirs.detach()).abs().max().item<double>();
  return apart / (epsilon * theirs.detach().abs().max().item<double>());
}

}  // namespace

TEST_CASE("100 steps of each optimizer agree with torch.optim to rounding", "[optim]") {
  INFO("seed " << testing::seed());
  const auto options = GENERATE(
      OptimizerOptions{.name = "sgd", .lr = 0.1}, OptimizerOptions{.lr = 0.05, .momentum = 0.9},
      OptimizerOptions{.lr = 0.05, .momentum = 0.9, .nesterov = true},
      OptimizerOptions{.lr = 0.05, .momentum = 0.9, .dampening = 0.3},
      OptimizerOptions{.lr = 0.05, .momentum = 0.9, .dampening = 1, .weight_decay = 0.1},
      OptimizerOptions{.lr = 0.1, .weight_decay = 0.01},
      OptimizerOptions{.lr = 0.05, .momentum = 0.8, .nesterov = true, .weight_decay = 0.02},
      OptimizerOptions{.name = "adam", .lr = 0.01},
      OptimizerOptions{.name = "adam", .lr = 0.02, .betas = {0.8, 0.95}, .eps = 1e-3},
      OptimizerOptions{.name = "adam", .lr = 0.01, .weight_decay = 0.1},
      OptimizerOptions{.name = "adam", .lr = 0.01, .betas = {0.0, 0.5}},
      OptimizerOptions{.name = "adam", .lr = 0.02, .betas = {0.5, 0.6}, .amsgrad = true},
      OptimizerOptions{.name = "adamw", .lr = 0.01},
      OptimizerOptions{.name = "adamw", .lr = 0.01, .weight_decay = 0.1, .amsgrad = true},
      OptimizerOptions{.name = "adamw", .lr = 0.01, .weight_decay = 0.1},
      OptimizerOptions{.name = "adamw", .lr = 0.02, .weight_decay = 0.5, .betas = {0.8, 0.99}},
      rmsprop({}), rmsprop({.alpha = 0.9, .eps = 1e-3}, 0.1), rmsprop({.momentum = 0.9}),
      rmsprop({.eps = 1e-2, .centered = true}),
      rmsprop({.eps = 1e-2, .momentum = 0.8, .centered = true}, 0.02), adagrad({}),
      adagrad({.lr_decay = 0.1, .eps = 1e-3}, 0.1), adagrad({.initial_accumulator_value = 2}));
  CAPTURE(options.name, options.lr, options.momentum, options.nesterov, options.weight_decay,
          options.betas[0], options.betas[1], options.eps, options.dampening, options.amsgrad);
  CHECK(difference(options, at::kDouble, 0x1p-53) < 100);
  CHECK(difference(options, at::kFloat, 0x1p-24) < 100);
}

}  // namespace lockstep
