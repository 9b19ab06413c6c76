#include "framework/tree/grad.h"

#include <map>
#include <source_location>
#include <stdexcept>
#include <string>
#include <utility>

#include <ATen/TensorOperators.h>
#include <ATen/ops/arange.h>
#include <ATen/ops/full.h>
#include <ATen/ops/ones.h>
#include <ATen/ops/zeros_like.h>
#include <c10/core/GradMode.h>

#include "framework/tree/error_place.h"
#include "tests/catch.h"
#include "tests/support/message_of.h"

using namespace lockstep;

namespace {

using Catch::Matchers::StartsWith;

struct Line {
  Tensor slope, offset, unused;
};
LOCKSTEP_TREE(Line, slope, offset, unused)

Tensor loss(const Line& line, const Tensor& xs, double scale) {
  return ((line.slope * xs + line.offset) * scale).pow(2).sum();
}

Line line() {
  return {at::full({}, 3.0), at::full({}, 1.0), at::ones({2, 2})};
}

}  // namespace

TEST_CASE("value_and_grad differentiates by every leaf of the first argument") {
  const Tensor xs = at::arange(4.0);
  const auto [value, gradient] = value_and_grad(loss)(line(), xs, 2.0);
  // Residuals 1, 4, 7, 10, times 2: the sum of squares is 4 * 166.
  CHECK(value.item<double>() == Approx(664));
  CHECK(gradient.slope.item<double>() == Approx(8 * (4 + 14 + 30)));
  CHECK(gradient.offset.item<double>() == Approx(8 * 22));
  CHECK(gradient.unused.equal(at::zeros_like(line().unused)));
  CHECK(!value.requires_grad());
  CHECK(!gradient.slope.requires_grad());
  CHECK(grad(loss)(line(), xs, 2.0).slope.item<double>() == Approx(8 * 48));
}

TEST_CASE("gradients agree with finite differences") {
  const auto f = [](const Tensor& x) { return (x.sin() * x.exp()).sum() / (1 + x.pow(2)).prod(); };
  const Tensor x = at::arange(5, at::kDouble) / 3;
  const Tensor gradient = grad(f)(x);
  const double h = 1e-6;
  for (int64_t i = 0; i < 5; ++i) {
    Tensor up = x.clone();
    Tensor down = x.clone();
    up[i] += h;
    down[i] -= h;
    const double slope = (f(up).item<double>() - f(down).item<double>()) / (2 * h);
    CHECK(gradient[i].item<double>() == Approx(slope).epsilon(1e-7));
  }
}

TEST_CASE("the arguments are left as they were") {
  Line parameters = line();
  parameters.slope.requires_grad_();
  const c10::AutoGradMode no_grad(false);
  (void)value_and_grad(loss)(parameters, at::arange(4.0), 1.0);
  CHECK(parameters.slope.requires_grad());
  CHECK(!parameters.slope.grad().defined());
  CHECK(!parameters.offset.requires_grad());
}

TEST_CASE("grad of grad") {
  const auto cube = [](const Tensor& x) { return x * x * x; };
  const auto second = grad(grad(cube));
  CHECK(second(at::full({}, 2.0)).item<double>() == Approx(12));
  CHECK(grad(second)(at::full({}, 2.0)).item<double>() == Approx(6));
}

TEST_CASE("what has no derivative is refused") {
  const auto id = [](const Tensor& x) { return x; };
  CHECK_THROWS_WITH(grad(id)(at::ones({3})),
                    ContainsSubstring("must be one floating-point number, not a tensor of [3]"));
  CHECK_THROWS_WITH(grad(id)(at::ones({}, at::kLong)),
                    ContainsSubstring("leaf 0 of argument 0 is Long"));
  CHECK_THROWS_AS(grad(id)(Tensor()), ValueError);
  using Parameters = std::map<std::string, Leaves>;
  const auto loss = [](const Parameters& p) { return p.at("w")[0].sum(); };
  CHECK_THROWS_WITH(grad(loss)(Parameters{{"w", {at::ones({}), at::ones({}, at::kLong)}}}),
                    ContainsSubstring("leaf ['w'][1] of argument 0 is Long"));
  // Both name the call.
  const auto line = std::to_string(__LINE__ + 1);
  const auto gradient = grad(id);
  for (const Tensor& x : {at::ones({3}), at::ones({}, at::kLong)}) {
    CHECK_THROWS_WITH(gradient(x), StartsWith("grad at grad_test.cpp:" + line + ": "));
  }
}

TEST_CASE("what a function returns beside its value comes back beside it") {
  const auto loss = [](const Tensor& x, double scale) {
    return std::pair((scale * x * x).sum(), std::pair(x + 1, 3 * x));
  };
  const Tensor x = at::arange(3.0);
  const auto [value_and_aux, gradient] = value_and_grad(loss, has_aux)(x, 2.0);
  CHECK(value_and_aux.first.item().toDouble() == Approx(10));
  CHECK(gradient.equal(4 * x));
  CHECK(value_and_aux.second.first.equal(x + 1));
  CHECK_FALSE(value_and_aux.second.second.requires_grad());
  const auto [alone, aux] = grad(loss, has_aux)(x, 2.0);
  CHECK(alone.equal(4 * x));
  CHECK(aux.second.equal(3 * x));
  // An auxiliary result may be no tree; a tree stays connected to an outer differentiation.
  const auto named = [](const Tensor& at) { return std::pair(at.sum(), std::string("metric")); };
  CHECK(grad(named, has_aux)(x).second == "metric");
  const auto outer = [&](const Tensor& at) {
    return grad(loss, has_aux)(at, 1.0).second.second.sum();
  };
  CHECK(grad(outer)(x).equal(3 * at::ones({3})));
}

TEST_CASE("argnums says by which arguments") {
  const auto f = [](const Line& at, const Tensor& xs, double scale, const Tensor& power) {
    return (scale * (at.slope * xs + at.offset)).sum() * power;
  };
  const Line at = line();
  const Tensor xs = at::arange(4.0);
  const Tensor power = at::full({}, 2.0);
  // The value is 2 * (3 * (0 + 1 + 2 + 3) + 4) * power.
  CHECK(grad(f, argnums<1>)(at, xs, 2.0, power).equal(at::full({4}, 12.0)));
  CHECK(grad(f, argnums<-1>)(at, xs, 2.0, power).item<double>() == Approx(44));
  const auto [value, gradients] = value_and_grad(f, argnums<3, 0>)(at, xs, 2.0, power);
  CHECK(value.item<double>() == Approx(88));
  CHECK(std::get<0>(gradients).item<double>() == Approx(44));
  CHECK(std::get<1>(gradients).slope.item<double>() == Approx(24));
  CHECK(std::get<1>(gradients).offset.item<double>() == Approx(16));
  CHECK(std::get<1>(gradients).unused.equal(at::zeros_like(at.unused)));
  const auto [by_line, by_xs] = grad(f, argnums<0, 1>)(at, xs, 2.0, power);
  CHECK(by_line.slope.item<double>() == Approx(24));
  CHECK(by_xs.equal(at::full({4}, 12.0)));
  // With an auxiliary result, and of a gradient.
  const auto with_aux = [](const Tensor& a, const Tensor& b) {
    return std::pair(a * b * b, a + b);
  };
  const auto [by_b, sum] = grad(with_aux, argnums<1>, has_aux)(power, 3 * power);
  CHECK(by_b.item<double>() == Approx(24));
  CHECK(sum.item<double>() == Approx(8));
  CHECK(value_and_grad(with_aux, argnums<1>, has_aux)(power, power).first.first.item<double>() ==
        Approx(8));
  const auto product = [](const Tensor& a, const Tensor& b) { return a * a * b; };
  CHECK(grad(grad(product, argnums<1>), argnums<0>)(3 * power, power).item<double>() == Approx(12));
  CHECK_THROWS_WITH(grad(product, argnums<0, 1>)(power, at::ones({}, at::kLong)),
                    ContainsSubstring("leaf 0 of argument 1 is Long"));
}

TEST_CASE("LibTorch's exceptions name the call of grad, and the shapes of its leaves") {
  const auto product = [](const Line& at, const Tensor& x) {
    return x.matmul(at.unused).sum() * at.slope;
  };
  const Line given{at::ones({}), at::ones({}), at::ones({3, 2})};
  const std::uint_least32_t row = std::source_location::current().line() + 2;
  try {
    (void)grad(product)(given, at::ones({4, 5}));
    FAIL("nothing was thrown");
  } catch (const c10::Error& error) {
    CHECK(message_text(error) ==
          "mat1 and mat2 shapes cannot be multiplied (4x5 and 3x2) (in grad at grad_test.cpp:" +
              std::to_string(row) + ", leaves Float (), Float (), Float (3, 2))");
  }
  // All forms know their calls.
  const auto aux = [&](const Line& a, const Tensor& x) { return std::pair(product(a, x), 1); };
  const auto text_of = [](const auto& call) {
    try {
      call();
    } catch (const c10::Error& error) {
      return message_text(error);
    }
    return std::string("nothing was thrown");
  };
  const Tensor x = at::ones({4, 5});
  for (const std::string& text :
       {text_of([&] { (void)grad(product, argnums<0>)(given, x); }),
        text_of([&] { (void)grad(aux, has_aux)(given, x); }),
        text_of([&] { (void)grad(aux, argnums<0>, has_aux)(given, x); }),
        text_of([&] { (void)value_and_grad(product)(given, x); }),
        text_of([&] { (void)value_and_grad(product, argnums<0>)(given, x); }),
        text_of([&] { (void)value_and_grad(aux, has_aux)(given, x); }),
        text_of([&] { (void)value_and_grad(aux, argnums<0>, has_aux)(given, x); })}) {
    CHECK_THAT(text, ContainsSubstring(" (in grad at grad_test.cpp:"));
  }
  // A map's at() throws the same type of exception as without grad.
  const std::map<std::string, Tensor> weights;
  const auto missing = [&](const Tensor& at) { return at * weights.at("bias"); };
  CHECK_THAT(testing::message_of<std::out_of_range>([&] { (void)grad(missing)(at::ones({3})); }),
             ContainsSubstring(" (in grad at grad_test.cpp:") &&
                 Catch::Matchers::EndsWith(", leaves Float (3))"));
}
