#include "framework/objectives/cross_entropy.h"

#include <cmath>
#include <limits>

#include <ATen/Functions.h>
#include <ATen/TensorOperators.h>

#include "framework/base/errors.h"
#include "framework/tree/grad.h"
#include "tests/catch.h"
#include "tests/objectives/numbers.h"
#include "tests/support/message_of.h"

using namespace lockstep;
using lockstep::testing::message_of;
using lockstep::testing::random_classes;
using lockstep::testing::random_values;

namespace {

constexpr std::int64_t kIgnored = -100;

struct Expected {
  double mean = 0;
  double weight = 0;
  at::Tensor gradient;
};

// The formula of cross_entropy.h and its derivative, written out in float64: with p = softmax(x_i)
// and y = y_i, that of target i by x_i[c] is
//   ((1 - e) w[y] (p[c] - [c = y]) + e/C (p[c] sum(w) - w[c])) / weight.
Expected written_out(const at::Tensor& outputs, const at::Tensor& targets,
                     const CrossEntropyOptions& options) {
  const std::int64_t classes = outputs.size(-1);
  const at::Tensor scores = outputs.reshape({-1, classes}).to(at::kDouble);
  const at::Tensor flat = targets.reshape({-1});
  const auto class_weight = [&](std::int64_t c) {
    return options.class_weights.empty() ? 1 : options.class_weights[static_cast<std::size_t>(c)];
  };
  double all_weights = 0;
  for (std::int64_t c = 0; c < classes; ++c) all_weights += class_weight(c);
  const double smoothing = options.label_smoothing;
  const double share = smoothing / static_cast<double>(classes);

  Expected expected;
  at::Tensor gradient = at::zeros_like(scores);
  for (std::int64_t i = 0; i < flat.numel(); ++i) {
    const auto target = flat[i].item<std::int64_t>();
    if (target == options.ignore_index) continue;
    expected.weight += class_weight(target);
    double total = 0;
    for (std::int64_t c = 0; c < classes; ++c) total += std::exp(scores[i][c].item<double>());
    for (std::int64_t c = 0; c < classes; ++c) {
      const double p = std::exp(scores[i][c].item<double>()) / total;
      const double hit = c == target ? 1 : 0;
      const double of_target = (1 - smoothing) * class_weight(target);
      expected.mean -= (of_target * hit + share * class_weight(c)) * std::log(p);
      gradient[i][c] = of_target * (p - hit) + share * (p * all_weights - class_weight(c));
    }
  }
  expected.mean /= expected.weight;
  expected.gradient = (gradient / expected.weight).view(outputs.sizes());
  return expected;
}

auto mean_of(const CrossEntropyOptions& options) {
  return
      [loss = make_cross_entropy(options)](const at::Tensor& outputs, const at::Tensor& targets) {
        return loss->mean(outputs, targets);
      };
}

}  // namespace

TEST_CASE("cross entropy: mean, weight and gradients are the written-out formula's",
          "[objectives]") {
  const auto smoothing = GENERATE(0.0, 0.1, 0.9);
  const auto weighted = GENERATE(false, true);
  const auto ignored = GENERATE(kIgnored, std::int64_t{2});
  const std::vector<std::int64_t> shape =
      GENERATE(std::vector<std::int64_t>{12}, std::vector<std::int64_t>{3, 5},
               std::vector<std::int64_t>{2, 3, 4});
  const std::uint64_t seed = 20 + shape.size();
  INFO("seed " << seed << ", smoothing " << smoothing << ", weighted " << weighted << ", ignored "
               << ignored);
  const Key key(seed);
  CrossEntropyOptions options{.label_smoothing = smoothing, .ignore_index = ignored};
  if (weighted) options.class_weights = {0.3, 0, 2.5, 1.25, 0.7};
  std::vector<std::int64_t> with_classes = shape;
  with_classes.push_back(5);
  const at::Tensor outputs = random_values(key.fold("outputs"), with_classes);
  const at::Tensor targets = random_classes(key.fold("targets"), shape, 5, ignored);

  const Expected expected = written_out(outputs, targets, options);
  const auto [mean, gradient] = value_and_grad(mean_of(options))(outputs, targets);
  CHECK(mean.dim() == 0);
  CHECK(mean.scalar_type() == at::kDouble);
  CHECK(mean.item<double>() == Approx(expected.mean).epsilon(1e-12));
  CHECK(at::allclose(gradient, expected.gradient, 1e-10, 1e-14));
  CHECK(make_cross_entropy(options)->weight(targets) == Approx(expected.weight).epsilon(1e-14));

  const auto [of_floats, gradient_of_floats] =
      value_and_grad(mean_of(options))(outputs.to(at::kFloat), targets);
  CHECK(of_floats.scalar_type() == at::kFloat);
  CHECK(of_floats.item<double>() == Approx(expected.mean).epsilon(1e-5));
  CHECK(at::allclose(gradient_of_floats.to(at::kDouble), expected.gradient, 1e-4, 1e-6));
}

TEST_CASE("cross entropy: gradients are finite differences", "[objectives]") {
  const auto f = mean_of({.label_smoothing = 0.2, .class_weights = {1, 2, 0.5, 0}});
  const at::Tensor outputs = random_values(Key(31), {2, 2, 4});
  const at::Tensor targets = at::tensor({0, 1, -100, 2}, at::kLong).view({2, 2});
  const at::Tensor gradient = grad(f)(outputs, targets).flatten();
  const double h = 1e-5;
  for (std::int64_t i = 0; i < outputs.numel(); ++i) {
    const at::Tensor up = outputs.clone();
    const at::Tensor down = outputs.clone();
    up.view({-1})[i] += h;
    down.view({-1})[i] -= h;
    const double slope =
        (f(up, targets).item<double>() - f(down, targets).item<double>()) / (2 * h);
    CHECK(gradient[i].item<double>() == Approx(slope).epsilon(1e-7).margin(1e-10));
  }
}

TEST_CASE("cross entropy: LibTorch's bits", "[objectives]") {
  const auto smoothing = GENERATE(0.0, 0.1);
  const Key key(32);
  const at::Tensor outputs = random_values(key.fold("outputs"), {40, 7}).to(at::kFloat);
  const at::Tensor targets = random_classes(key.fold("targets"), {40}, 7, kIgnored);
  const std::vector<double> weights{1, 2, 3, 0.5, 0, 4, 1};
  const auto libtorch = [&](const at::Tensor& class_weights) {
    return at::cross_entropy_loss(outputs, targets, class_weights, at::Reduction::Mean, kIgnored,
                                  smoothing);
  };
  CHECK(mean_of({.label_smoothing = smoothing})(outputs, targets).equal(libtorch({})));
  CHECK(mean_of({.label_smoothing = smoothing, .class_weights = weights})(outputs, targets)
            .equal(libtorch(at::tensor(weights, at::kFloat))));
}

TEST_CASE("cross entropy: half types are computed in float32", "[objectives]") {
  const auto half = GENERATE(at::kBFloat16, at::kHalf);
  const auto smoothing = GENERATE(0.0, 0.1);
  const Key key(33);
  const at::Tensor outputs = random_values(key.fold("outputs"), {6, 4, 9}).to(half);
  const at::Tensor targets = random_classes(key.fold("targets"), {6, 4}, 9, kIgnored);
  const auto f = mean_of({.label_smoothing = smoothing});
  const auto [mean, gradient] = value_and_grad(f)(outputs, targets);
  const auto [in_float32, its_gradient] = value_and_grad(f)(outputs.to(at::kFloat), targets);
  CHECK(mean.scalar_type() == at::kFloat);
  CHECK(mean.equal(in_float32));
  CHECK(gradient.scalar_type() == half);
  CHECK(gradient.equal(its_gradient.to(half)));
}

TEST_CASE("cross entropy: where nothing counts, mean and gradients are zero", "[objectives]") {
  const auto smoothing = GENERATE(0.0, 0.1);
  const double nan = std::numeric_limits<double>::quiet_NaN();
  const at::Tensor outputs = at::full({3, 2}, nan, at::kFloat);
  const auto check = [&](const CrossEntropyOptions& options, const at::Tensor& targets) {
    const auto [mean, gradient] = value_and_grad(mean_of(options))(outputs, targets);
    CHECK(mean.scalar_type() == at::kFloat);
    CHECK(mean.item<double>() == 0);
    CHECK(gradient.equal(at::zeros({3, 2})));
    CHECK(make_cross_entropy(options)->weight(targets) == 0);
  };
  check({.label_smoothing = smoothing}, at::full({3}, kIgnored, at::kLong));
  check({.label_smoothing = smoothing, .class_weights = {0, 1}}, at::zeros({3}, at::kLong));
}

TEST_CASE("cross entropy: an ignored target's outputs do not matter", "[objectives]") {
  const auto smoothing = GENERATE(0.0, 0.1);
  const auto weights = GENERATE(std::vector<double>{}, std::vector<double>{1, 2, 3});
  const auto f = mean_of({.label_smoothing = smoothing, .class_weights = weights});
  const at::Tensor outputs = random_values(Key(34), {3, 3});
  const at::Tensor targets = at::tensor({0, -100, 2}, at::kLong);
  const at::Tensor others = outputs.clone();
  others[1] = 1e6 * outputs[2];
  const auto [mean, gradient] = value_and_grad(f)(outputs, targets);
  const auto [of_others, gradient_of_others] = value_and_grad(f)(others, targets);
  CHECK(mean.equal(of_others));
  CHECK(gradient.equal(gradient_of_others));
  CHECK(gradient[1].equal(at::zeros({3}, at::kDouble)));
}

TEST_CASE("cross entropy: outputs and targets in any memory order", "[objectives]") {
  const Key key(35);
  const at::Tensor outputs = random_values(key.fold("outputs"), {4, 3, 5});
  const at::Tensor targets = random_classes(key.fold("targets"), {4, 3}, 5, kIgnored);
  const auto loss = make_cross_entropy();
  const at::Tensor strided_outputs = outputs.permute({2, 1, 0}).contiguous().permute({2, 1, 0});
  const at::Tensor strided_targets = targets.t().contiguous().t();
  CHECK(loss->mean(strided_outputs, strided_targets).equal(loss->mean(outputs, targets)));
  CHECK(loss->weight(strided_targets) == loss->weight(targets));
  const auto weighted = make_cross_entropy({.class_weights = {1, 2, 3, 4, 5}});
  CHECK(weighted->weight(strided_targets) == weighted->weight(targets));
}

TEST_CASE("cross entropy: weighted by samples only if nothing is ignored", "[objectives]") {
  CHECK_FALSE(make_cross_entropy()->is_weighted_by_samples());
  CHECK_FALSE(make_cross_entropy({.class_weights = {1, 2}, .ignore_index = std::nullopt})
                  ->is_weighted_by_samples());
  const auto loss = make_cross_entropy({.ignore_index = std::nullopt});
  CHECK(loss->is_weighted_by_samples());
  CHECK_FALSE(loss->ignore_index());
  CHECK(loss->weight(at::zeros({4, 3}, at::kLong)) == 12);
  CHECK(make_cross_entropy()->ignore_index() == kIgnored);
  for (const std::int64_t target : {std::int64_t{-1}, kIgnored}) {
    CHECK_THROWS_AS(loss->mean(at::zeros({1, 3}), at::full({1}, target, at::kLong)), ValueError);
  }
}

TEST_CASE("cross entropy refuses what it would have to guess", "[objectives]") {
  const auto refusal = [](const at::Tensor& outputs, const at::Tensor& targets,
                          const CrossEntropyOptions& options = {}) {
    return message_of<ValueError>(
        [&] { (void)make_cross_entropy(options)->mean(outputs, targets); });
  };
  const at::Tensor labels = at::zeros({4}, at::kLong);
  CHECK(refusal(at::zeros({4, 3}), at::zeros({3}, at::kLong)) ==
        "cross_entropy: outputs must be floating-point numbers of shape (samples, …, classes), "
        "targets int64 of shape (samples, …), both on the CPU; outputs are Float (4, 3), targets "
        "Long (3)");
  for (const at::Tensor& outputs :
       {at::zeros({4}), at::zeros({4, 2, 3}), at::zeros({4, 0}), at::zeros({}),
        at::zeros({4, 3}, at::kInt), at::zeros({4, 3}, at::kComplexFloat)}) {
    CHECK_THAT(refusal(outputs, labels), ContainsSubstring("targets Long (4)"));
  }
  CHECK_THAT(refusal(at::zeros({4, 3}), at::zeros({4})), ContainsSubstring("targets Float (4)"));
  for (const at::Tensor& targets :
       {at::zeros({}, at::kLong), at::zeros({4, 3}, at::kLong), at::zeros({4, 3, 1}, at::kLong)}) {
    CHECK_THAT(refusal(at::zeros({4, 3}), targets), ContainsSubstring("outputs are Float (4, 3)"));
  }
  // Classes in the second dimension, as PyTorch has them.
  CHECK_THAT(refusal(at::zeros({4, 3, 7}), at::zeros({4, 7}, at::kLong)),
             ContainsSubstring("outputs are Float (4, 3, 7), targets Long (4, 7)"));
  CHECK(refusal(at::zeros({0, 3}), at::zeros({0}, at::kLong)) ==
        "cross_entropy: the batch has no samples; outputs are Float (0, 3), targets Long (0)");
  CHECK_THAT(refusal(at::zeros({2, 0, 3}), at::zeros({2, 0}, at::kLong)),
             ContainsSubstring("no samples"));

  CHECK(refusal(at::zeros({3, 3}), at::tensor({0, 3, 1}, at::kLong)) ==
        "cross_entropy: target 1 is 3; it must be a class, 0 to 2, or -100");
  CHECK(refusal(at::zeros({1, 2, 3}), at::tensor({0, -1}, at::kLong).view({1, 2}),
                {.ignore_index = std::nullopt}) ==
        "cross_entropy: target 1 is -1; it must be a class, 0 to 2");
  CHECK(refusal(at::zeros({4, 3}), labels, {.class_weights = {1, 2}}) ==
        "cross_entropy: class_weights has 2 numbers, but outputs have 3 classes");

  CHECK_THROWS_WITH(make_cross_entropy()->weight(at::zeros({4})),
                    ContainsSubstring("targets must be int64 and on the CPU, not Float"));
  CHECK_THROWS_WITH(make_cross_entropy({.class_weights = {1, 2}})->weight(labels + 2),
                    ContainsSubstring("target 0 is 2; it must be a class, 0 to 1, or -100"));
}

TEST_CASE("cross entropy refuses options out of their range", "[objectives]") {
  const double nan = std::numeric_limits<double>::quiet_NaN();
  for (const double smoothing : {-0.1, 1.0, nan}) {
    CHECK_THAT(
        message_of<ValueError>([&] { (void)make_cross_entropy({.label_smoothing = smoothing}); }),
        ContainsSubstring("at least 0 and less than 1, not "));
  }
  for (const double weight : {-1.0, nan, 1e-31, std::numeric_limits<double>::infinity()}) {
    CHECK_THAT(message_of<ValueError>([&] {
                 (void)make_cross_entropy({.class_weights = {1, weight}});
               }),
               ContainsSubstring("0 or from 1e-30 to 1e+30, not "));
  }
  CHECK_THAT(message_of<ValueError>([&] {
               (void)make_cross_entropy({.class_weights = {0, 0}});
             }),
             ContainsSubstring("one of class_weights must be above 0; they are 0, 0"));
}
