// Derivatives of derivatives, by another tensor than the inner one is by.

#include <cstddef>
#include <optional>
#include <stdexcept>
#include <utility>
#include <vector>

#include <ATen/TensorOperators.h>
#include <ATen/ops/arange.h>
#include <ATen/ops/full.h>
#include <c10/core/GradMode.h>

#include "framework/collectives/axis_index.h"
#include "framework/collectives/psum.h"
#include "framework/launch/launch.h"
#include "framework/maps/pmap.h"
#include "framework/maps/vmap.h"
#include "framework/tree/grad.h"
#include "tests/catch.h"

using namespace lockstep;

namespace {

Tensor number(double value) {
  return at::full({}, value, at::kDouble);
}

double of(const Tensor& tensor) {
  return tensor.item<double>();
}

// w² x³, for w = 2 and x = 3.
Tensor product(const Tensor& x, const Tensor& w) {
  return (w * w * x * x * x).sum();
}

// Calls check(map) with a pmap and a vmap over "i".
template <typename Check>
void in_both_maps(const Check& check) {
  check([](const auto& f, const Tensor& xs) { return pmap(f, {.axis_name = "i"})(xs); });
  check([](const auto& f, const Tensor& xs) { return vmap(f, {.axis_name = "i"})(xs); });
}

}  // namespace

TEST_CASE("a gradient is differentiated by a tensor that the function captured") {
  const Tensor x = number(3);
  const auto by_x = [&](const Tensor& w) {
    return grad([&](const Tensor& at) { return product(at, w); })(x);
  };
  CHECK(of(by_x(number(2))) == Approx(4 * 3 * 9));
  CHECK(of(grad(by_x)(number(2))) == Approx(2 * 2 * 3 * 9));
  CHECK(of(grad(grad(by_x))(number(2))) == Approx(2 * 3 * 9));
}

TEST_CASE("a gradient is differentiated by another argument than the first") {
  const auto by_x = [](const Tensor& w) { return grad(product)(number(3), w); };
  CHECK(of(grad(by_x)(number(2))) == Approx(108));
  const auto twice_by_x = [](const Tensor& w) { return grad(grad(product))(number(3), w); };
  CHECK(of(grad(twice_by_x)(number(2))) == Approx(2 * 2 * 6 * 3));
}

TEST_CASE("a gradient is differentiated by one leaf of two") {
  const auto by_both = [](const Tensor& w) {
    const auto of_pair = [](const std::pair<Tensor, Tensor>& at) {
      return product(at.first, at.second);
    };
    const auto [x_slope, w_slope] = grad(of_pair)(std::pair(number(3), w));
    return x_slope + w_slope;
  };
  CHECK(of(grad(by_both)(number(2))) == Approx(108 + 2 * 27));
}

TEST_CASE("the value beside a gradient is differentiated from outside") {
  const auto value = [](const Tensor& w) { return value_and_grad(product)(number(3), w).first; };
  CHECK(of(grad(value)(number(2))) == Approx(2 * 2 * 27));
}

TEST_CASE("what a function returns beside its value is differentiated from outside") {
  const auto f = [](const Tensor& x, const Tensor& w) { return std::pair(product(x, w), w * x); };
  const auto aux = [&](const Tensor& w) { return grad(f, has_aux)(number(3), w).second; };
  CHECK(of(grad(aux)(number(2))) == Approx(3));
  const auto all = [&](const Tensor& w) {
    const auto [value_and_aux, gradient] = value_and_grad(f, has_aux)(number(3), w);
    return value_and_aux.first + value_and_aux.second + gradient;
  };
  CHECK(of(grad(all)(number(2))) == Approx(108 + 3 + 108));
}

TEST_CASE("gradients taken inside maps are differentiated by what the maps captured") {
  // Replica i has w² xᵢ³ (of which the psum counts four times in the sum of all results).
  const Tensor xs = at::arange(4, at::kDouble);
  const double squares = 0 + 1 + 4 + 9;
  in_both_maps([&](const auto& map) {
    const auto slopes = [&](const Tensor& w) {
      return map(
          [&](const Tensor& x) {
            return grad([&](const Tensor& at) { return psum(product(at, w), "i"); })(x);
          },
          xs);
    };
    CHECK_FALSE(slopes(number(2)).requires_grad());
    const auto sum = [&](const Tensor& w) { return slopes(w).sum(); };
    CHECK(of(grad(sum)(number(2))) == Approx(4 * 2 * 2 * 3 * squares));
    CHECK(of(grad(grad(sum))(number(2))) == Approx(4 * 2 * 3 * squares));
    const auto values = [&](const Tensor& w) {
      const auto value = [&](const Tensor& x) { return value_and_grad(product)(x, w).first; };
      return map(value, xs).sum();
    };
    CHECK(of(grad(values)(number(2))) == Approx(2 * 2 * (1 + 8 + 27)));
  });
}

TEST_CASE("gradients taken inside a map are differentiated by a shared argument of it") {
  const Tensor xs = at::arange(4, at::kDouble);
  const auto sum = [&](const Tensor& w) {
    return pmap([](const Tensor& x, const Tensor& of_all) { return grad(product)(x, of_all); },
                {.axis_name = "i", .in_axes = {0, std::nullopt}})(xs, w)
        .sum();
  };
  CHECK(of(grad(sum)(number(2))) == Approx(2 * 2 * 3 * 14));
}

TEST_CASE("gradients of a map are differentiated by what it captured") {
  const Tensor xs = at::arange(4, at::kDouble);
  in_both_maps([&](const auto& map) {
    const auto slopes = [&](const Tensor& w) {
      const auto loss = [&](const Tensor& at) {
        return map([&](const Tensor& x) { return psum(product(x, w), "i"); }, at).sum();
      };
      return grad(loss)(xs).sum();
    };
    CHECK(of(grad(slopes)(number(2))) == Approx(4 * 2 * 2 * 3 * 14));
  });
}

TEST_CASE("nested gradients agree in a job whose members run different numbers of replicas") {
  std::vector<double> found(2);
  const auto member = [&] {
    const auto index = axis_index("job");
    const Tensor xs = at::arange(1, 2 + index, at::kDouble);  // 1; 1 and 2
    const auto slopes = [&](const Tensor& w) {
      const auto slope = [](const Tensor& x, const Tensor& of_all) {
        return grad([&](const Tensor& at) { return psum(product(at, of_all), "i"); })(x);
      };
      return pmap(slope, {.axis_name = "i", .in_axes = {0, std::nullopt}})(xs, w).sum();
    };
    found[static_cast<std::size_t>(index)] = of(grad(slopes)(number(2)));
  };
  REQUIRE(launch(member, {.replicas = 2, .mode = LaunchMode::threads, .axis_name = "job"}) == 0);
  for (const double slope : found) CHECK(slope == Approx(3 * 2 * 2 * 3 * (1 + 1 + 4)));
}

TEST_CASE("outside of any differentiation nothing keeps a graph") {
  Tensor captured = number(2);
  captured.requires_grad_();
  const auto f = [&](const Tensor& x) { return std::pair(product(x, captured), captured * x); };
  const auto check = [&] {
    const auto [value_and_aux, gradient] = value_and_grad(f, has_aux)(number(3));
    CHECK_FALSE(value_and_aux.first.requires_grad());
    CHECK_FALSE(value_and_aux.second.requires_grad());
    CHECK_FALSE(gradient.requires_grad());
  };
  check();
  // No graph is kept where the outer one does not follow, or after a call that failed.
  const auto unfollowed = [&](const Tensor& w) {
    const c10::AutoGradMode no_grad(false);
    check();
    return w * 1;
  };
  CHECK(of(grad(unfollowed)(number(5))) == 0);
  const auto fails = [](const Tensor&) -> Tensor { throw std::runtime_error("no value"); };
  CHECK_THROWS_AS(grad(fails)(number(1)), std::runtime_error);
  CHECK(grad_depth == 0);
  check();
  // A first argument that requires gradients itself keeps the graph.
  CHECK(value_and_grad(f, has_aux)(captured).first.second.requires_grad());
  CHECK(grad(f, has_aux)(captured).first.requires_grad());
}
