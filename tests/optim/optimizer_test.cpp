#include "framework/optim/optimizer.h"

#include <cmath>
#include <cstdint>
#include <functional>
#include <limits>
#include <vector>

#include <ATen/Functions.h>

#include "framework/base/errors.h"
#include "framework/base/random.h"
#include "tests/catch.h"

namespace lockstep {
namespace {

constexpr int kSteps = 100;
constexpr std::uint64_t kSeed = 20240;

// One number and what its optimizer remembers, as textbooks write them.
struct Scalar {
  double value = 0;
  double first = 0;   // sgd: velocity; adam: mean of gradients
  double second = 0;  // adam: mean of squares
};

using Rule = std::function<void(Scalar& scalar, double gradient, int step)>;

Rule sgd(const OptimizerOptions& options) {
  return [options](Scalar& scalar, double gradient, int step) {
    const double g = gradient + options.weight_decay * scalar.value;
    scalar.first = step == 1 ? g : options.momentum * scalar.first + g;
    const double direction = options.nesterov ? g + options.momentum * scalar.first : scalar.first;
    scalar.value -= options.lr * (options.momentum == 0 ? g : direction);
  };
}

Rule adam(const OptimizerOptions& options) {
  return [options](Scalar& scalar, double gradient, int step) {
    const auto [beta1, beta2] = options.betas;
    const double g = gradient + options.weight_decay * scalar.value;
    scalar.first = beta1 * scalar.first + (1 - beta1) * g;
    scalar.second = beta2 * scalar.second + (1 - beta2) * g * g;
    const double mean = scalar.first / (1 - std::pow(beta1, step));
    const double square = scalar.second / (1 - std::pow(beta2, step));
    scalar.value -= options.lr * mean / (std::sqrt(square) + options.eps);
  };
}

double random_gradient(int step, std::size_t index) {
  const std::uint64_t bits = Key(kSeed).fold(static_cast<std::uint64_t>(step)).fold(index).bits();
  return std::ldexp(static_cast<double>(bits >> 11), -53) * 2 - 1;
}

// Two parameters of 3 and 2 values, updated by the optimizer and, one by one, by the rule.
void check_against(const OptimizerOptions& options, const Rule& rule) {
  INFO("seed " << kSeed);
  std::vector<Scalar> expected{{0.5}, {-1.25}, {2.0}, {0.0}, {-0.75}};
  std::vector<at::Tensor> parameters{at::tensor({0.5, -1.25, 2.0}, at::kDouble),
                                     at::tensor({0.0, -0.75}, at::kDouble)};
  for (at::Tensor& parameter : parameters) parameter.requires_grad_();
  const auto optimizer = make_optimizer(options, parameters);
  for (int step = 1; step <= kSteps; ++step) {
    std::vector<double> gradients;
    for (std::size_t i = 0; i < expected.size(); ++i) {
      gradients.push_back(random_gradient(step, i));
      rule(expected[i], gradients[i], step);
    }
    const at::Tensor all = at::tensor(gradients, at::kDouble);
    parameters[0].mutable_grad() = all.slice(0, 0, 3).clone();
    parameters[1].mutable_grad() = all.slice(0, 3, 5).clone();
    optimizer->step();
  }
  const at::Tensor values = at::cat({parameters[0].detach(), parameters[1].detach()});
  for (std::size_t i = 0; i < expected.size(); ++i) {
    CHECK(values[static_cast<std::int64_t>(i)].item<double>() ==
          Approx(expected[i].value).epsilon(1e-12).margin(1e-13));
  }
}

TEST_CASE("SGD follows its recurrence", "[optim]") {
  const auto options = GENERATE(
      OptimizerOptions{.name = "sgd", .lr = 0.1}, OptimizerOptions{.lr = 0.05, .momentum = 0.9},
      OptimizerOptions{.lr = 0.05, .momentum = 0.9, .nesterov = true},
      OptimizerOptions{.lr = 0.1, .weight_decay = 0.01},
      OptimizerOptions{.lr = 0.05, .momentum = 0.8, .nesterov = true, .weight_decay = 0.02});
  CAPTURE(options.lr, options.momentum, options.nesterov, options.weight_decay);
  check_against(options, sgd(options));
}

TEST_CASE("Adam follows its recurrence", "[optim]") {
  const auto options =
      GENERATE(OptimizerOptions{.name = "adam", .lr = 0.01},
               OptimizerOptions{.name = "adam", .lr = 0.02, .betas = {0.8, 0.95}, .eps = 1e-3},
               OptimizerOptions{.name = "adam", .lr = 0.01, .weight_decay = 0.1},
               OptimizerOptions{.name = "adam", .lr = 0.01, .betas = {0.0, 0.5}});
  CAPTURE(options.lr, options.betas[0], options.betas[1], options.eps, options.weight_decay);
  check_against(options, adam(options));
}

TEST_CASE("an optimizer leaves parameters without a gradient as they are", "[optim]") {
  const auto name = GENERATE("sgd", "adam");
  const at::Tensor with = at::ones({2}).requires_grad_();
  const at::Tensor without = at::ones({2}).requires_grad_();
  const auto optimizer = make_optimizer({.name = name, .weight_decay = 0.5}, {with, without});
  with.mutable_grad() = at::ones({2});
  optimizer->step();
  CHECK(at::equal(without, at::ones({2})));
  CHECK_FALSE(at::equal(with, at::ones({2})));
}

TEST_CASE("an optimizer's name is checked", "[optim]") {
  CHECK(optimizer_names() == std::vector<std::string>{"sgd", "adam"});
  CHECK_THROWS_AS(make_optimizer({.name = "adan"}, {}), ValueError);
  CHECK_THROWS_WITH(
      make_optimizer({.name = "adan"}, {}),
      ContainsSubstring("unknown optimizer 'adan' (did you mean 'adam'?); known are sgd, adam"));
}

TEST_CASE("an optimizer's numbers are checked", "[optim]") {
  const auto message = [](const OptimizerOptions& options) -> std::string {
    try {
      (void)make_optimizer(options, {});
    } catch (const ValueError& error) {
      return error.what();
    }
    return "no error";
  };
  const double nan = std::numeric_limits<double>::quiet_NaN();
  CHECK(message({.lr = -0.1}) ==
        "optimizer sgd: lr must be a finite number of at least 0, not -0.1");
  CHECK(message({.lr = nan}) == "optimizer sgd: lr must be a finite number of at least 0, not nan");
  CHECK_THAT(message({.weight_decay = -1}), ContainsSubstring("weight_decay"));
  CHECK_THAT(message({.momentum = -0.5}), ContainsSubstring("momentum"));
  CHECK_THAT(message({.nesterov = true}), ContainsSubstring("nesterov needs a momentum above 0"));
  CHECK_THAT(message({.name = "adam", .eps = -1e-8}), ContainsSubstring("eps"));
  CHECK(message({.name = "adam", .betas = {0.9, 1.0}}) ==
        "optimizer adam: betas must be at least 0 and below 1, not 1");
}

TEST_CASE("an option that the optimizer doesn't have is refused", "[optim]") {
  CHECK_THROWS_WITH(make_optimizer({.name = "adam", .momentum = 0.9}, {}),
                    ContainsSubstring("optimizer adam: momentum is not an option of it"));
  CHECK_THROWS_WITH(make_optimizer({.name = "adam", .nesterov = true}, {}),
                    ContainsSubstring("nesterov is not an option"));
  CHECK_THROWS_WITH(make_optimizer({.betas = {0.5, 0.9}}, {}),
                    ContainsSubstring("optimizer sgd: betas is not an option of it"));
  CHECK_THROWS_WITH(make_optimizer({.eps = 1e-3}, {}), ContainsSubstring("eps is not an option"));
}

TEST_CASE("an optimizer takes only leaves of a floating dtype", "[optim]") {
  const at::Tensor leaf = at::ones({2}).requires_grad_();
  const std::string rule = "parameter 1 of 2 must be a leaf tensor of a floating dtype";
  CHECK_THROWS_WITH(make_optimizer({}, {leaf, leaf.mul(2)}), ContainsSubstring(rule));
  CHECK_THROWS_WITH(make_optimizer({}, {leaf, at::ones({2}, at::kLong)}), ContainsSubstring(rule));
  CHECK_THROWS_WITH(make_optimizer({}, {leaf, at::Tensor()}), ContainsSubstring(rule));
}

}  // namespace
}  // namespace lockstep
