#include <functional>
#include <tuple>
#include <utility>

#include <ATen/CPUGeneratorImpl.h>
#include <ATen/TensorOperators.h>
#include <ATen/ops/allclose.h>
#include <ATen/ops/full.h>
#include <ATen/ops/ones.h>
#include <ATen/ops/randn.h>
#include <ATen/ops/tensor.h>
#include <ATen/ops/zeros.h>
#include <c10/core/GradMode.h>

#include "framework/base/text.h"
#include "framework/collectives/all_gather.h"
#include "framework/collectives/axis_index.h"
#include "framework/collectives/psum.h"
#include "framework/collectives/psum_scatter.h"
#include "framework/tree/grad.h"
#include "tests/collectives/cases.h"
#include "tests/collectives/oracle.h"

namespace lockstep::testing {
namespace {

constexpr std::uint64_t kSeed = 20240918;

using Sizes = std::vector<std::int64_t>;
using Operation = std::function<Tensor(const Tensor&)>;

Tensor normal(const std::string& use, at::IntArrayRef sizes) {
  const Key key = Key(kSeed).fold(use).fold(static_cast<std::uint64_t>(axis_index("i")));
  return at::randn(sizes, at::detail::createCPUGenerator(key.bits()), at::kDouble);
}

// How the sum of all replicas' f changes when one of them moves along its direction, by finite
// differences; one number a replica.
Tensor slopes(const Operation& f, const Tensor& x, const Tensor& direction) {
  constexpr double kStep = 1e-5;
  const std::int64_t replicas = axis_size("i");
  const Tensor differences = at::zeros({replicas}, at::kDouble);
  for (std::int64_t mover = 0; mover < replicas; ++mover) {
    const Tensor step = direction * (mover == axis_index("i") ? kStep : 0);
    differences[mover].copy_(f(x + step) - f(x - step));
  }
  return psum(differences, "i") / (2 * kStep);
}

void check_derivative(const std::string& which, const Operation& f, const Tensor& x) {
  const Tensor derivative = grad(f)(x);
  for (const auto* use : {"first direction", "second direction"}) {
    const Tensor direction = normal(use, x.sizes());
    const Tensor expected = slopes(f, x, direction);
    const Tensor slope = all_gather((derivative * direction).sum(), "i");
    const double error = (slope - expected).abs().max().item().toDouble();
    expect(error < 1e-7 * (1 + expected.abs().max().item().toDouble()),
           lockstep::str("seed ", kSeed, ": the ", which, " derivative is ", derivative,
                         "; along the ", use, " that gives ", slope,
                         " by replica, finite differences ", expected));
  }
}

void check_derivatives(const Sizes& sizes, const Operation& operation) {
  const Operation loss = [&](const Tensor& at) {
    const Tensor result = operation(at * at);
    return (result.sin() * normal("weights", result.sizes())).sum();
  };
  const Operation along = [&](const Tensor& at) {
    return (grad(loss)(at) * normal("along", sizes)).sum();
  };
  const Tensor x = normal("x", sizes);
  check_derivative("first", loss, x);
  check_derivative("second", along, x);
}

// Each replica's result weighs its index + 1; with four replicas that is 10 in all.
Tensor gradient_of(const Operation& operation, const Tensor& x) {
  const auto weight = static_cast<double>(axis_index("i") + 1);
  return grad([&](const Tensor& at) { return (weight * operation(at)).sum(); })(x);
}

void ties() {
  const auto me = static_cast<std::size_t>(axis_index("i"));
  const auto largest = [](const Tensor& x) { return pmax(x, "i"); };
  const auto smallest = [](const Tensor& x) { return pmin(x, "i"); };
  const auto expect_gradient = [](const Tensor& gradient, const Tensor& expected) {
    expect(at::allclose(gradient, expected, 1e-14, 0),
           lockstep::str("the gradient at ties is ", gradient, ", not ", expected));
  };
  // Three hold the first extremum, two the second, all the third.
  const std::vector<double> three{2, 2, 1, 2};
  const std::vector<double> two{0, 5, 5, 1};
  const Tensor x = at::tensor({three[me], two[me], 7.0}, at::kDouble);
  const Tensor expected =
      at::tensor({me == 2 ? 0 : 10.0 / 3, me == 1 || me == 2 ? 5.0 : 0, 2.5}, at::kDouble);
  expect_gradient(gradient_of(largest, x), expected);
  expect_gradient(gradient_of(smallest, -x), expected);
  const auto in_groups = [](const Tensor& at) {
    return pmax(at, "i", {.axis_index_groups = {{2}, {3, 0, 1}}});
  };
  expect_gradient(gradient_of(in_groups, x.narrow(0, 0, 1)),
                  at::full({1}, me == 2 ? 3 : 7.0 / 3, at::kDouble));
  // Between two equals a central difference is the half, as the gradient is.
  const auto total = [&](const Tensor& at) {
    return (static_cast<double>(me + 1) * largest(at)).sum();
  };
  const Tensor pair = x.narrow(0, 1, 1);
  const Tensor differences = slopes(total, pair, at::ones({1}, at::kDouble));
  expect(at::allclose(all_gather(grad(total)(pair), "i", {.tiled = true}), differences, 1e-7, 1e-9),
         lockstep::str("by finite differences the gradient of the larger is ", differences));
}

// Leaves that have no derivative, and results that nothing depends on, are in nobody's way.
void mixed_trees() {
  const auto all = [](const auto& tree) {
    return std::tuple(psum(tree, "i"), pmean(tree, "i"), pmax(tree, "i"), all_gather(tree, "i"),
                      psum_scatter(tree, "i", {.tiled = true}));
  };
  const std::int64_t n = axis_size("i");
  const auto f = [&](const std::vector<Tensor>& x) {
    const std::vector<Tensor> tree{x[0], at::ones({n}, at::kInt), x[1], at::ones({n}, at::kBool),
                                   x[2]};
    const auto [sum, mean, largest, gathered, scattered] = all(tree);
    return (sum[0] + mean[0] + largest[0]).sum() + gathered[4].sum() + scattered[0].sum() +
           sum[1].sum() + mean[3].sum();
  };
  const std::vector<Tensor> x{at::ones({n}, at::kDouble), at::ones({n}, at::kDouble),
                              at::ones({n}, at::kFloat)};
  const auto gradients = grad(f)(x);
  const auto size = static_cast<double>(n);
  expect(gradients[0].equal(at::full({n}, size + 3, at::kDouble)),
         "the gradient of the first leaf");
  expect(gradients[1].equal(at::zeros({n}, at::kDouble)), "the gradient of a leaf without effect");
  expect(gradients[2].equal(at::full({n}, size, at::kFloat)), "the gradient of the float32 leaf");
}

// No gradient is asked for: none is recorded.
void without_gradients() {
  const Tensor x = at::ones({2}).requires_grad_();
  expect(psum(x, "i").requires_grad(), "the sum of what requires a gradient requires none");
  expect(!psum(x.detach(), "i").requires_grad(), "the sum of what requires no gradient does");
  const c10::AutoGradMode no_grad(false);
  expect(!psum(x, "i").requires_grad(), "gradients are recorded in no_grad mode");
}

struct Example {
  std::string name;
  std::vector<std::int64_t> replicas;
  Sizes sizes;
  Operation operation;
};

// `pieces` is the length of the scattered dimension, for as many replicas.
Example scattered(const std::string& name, std::int64_t replicas, const Sizes& sizes,
                  const PsumScatterOptions& options) {
  return {"psum_scatter " + name, {replicas}, sizes, [=](const Tensor& x) {
            return psum_scatter(x, "i", options);
          }};
}

Example gathered(const std::string& name, const std::vector<std::int64_t>& replicas,
                 const AllGatherOptions& options) {
  return {"all_gather " + name, replicas, {2, 3}, [=](const Tensor& x) {
            return all_gather(x, "i", options);
          }};
}

std::vector<Example> examples() {
  const AxisIndexGroups pairs{{0, 2}, {3, 1}};
  const ReduceOptions uneven{.axis_index_groups = {{2}, {3, 0, 1}}};
  std::vector<Example> all{
      {"psum", {1, 2, 3, 4}, {2, 3}, [](const Tensor& x) { return psum(x, "i"); }},
      {"pmean", {1, 2, 3, 4}, {2, 3}, [](const Tensor& x) { return pmean(x, "i"); }},
      {"pmax", {1, 2, 3, 4}, {2, 3}, [](const Tensor& x) { return pmax(x, "i"); }},
      {"pmin", {1, 2, 3, 4}, {2, 3}, [](const Tensor& x) { return pmin(x, "i"); }},
      {"psum of a scalar", {3}, {}, [](const Tensor& x) { return psum(x, "i"); }},
      {"psum in groups", {4}, {3}, [=](const Tensor& x) { return psum(x, "i", uneven); }},
      {"pmean in groups", {4}, {3}, [=](const Tensor& x) { return pmean(x, "i", uneven); }},
      {"pmax in groups", {4}, {3}, [=](const Tensor& x) { return pmax(x, "i", uneven); }},
      {"pmin in groups", {4}, {3}, [=](const Tensor& x) { return pmin(x, "i", uneven); }},
      {"psum of a transposed view", {2}, {2, 3}, [](const Tensor& x) { return psum(x.t(), "i"); }},
      gathered("along 0", {1, 2, 3}, {}),
      gathered("along -1", {1, 3}, {.axis = -1}),
      gathered("along -3", {2}, {.axis = -3}),
      gathered("along 1, tiled", {1, 3}, {.axis = 1, .tiled = true}),
      gathered("along -2, tiled", {2}, {.axis = -2, .tiled = true}),
      gathered("in groups", {4}, {.axis = -2, .axis_index_groups = pairs}),
      gathered("in groups, tiled", {4}, {.axis = -1, .tiled = true, .axis_index_groups = pairs}),
      scattered("in groups", 4, {3, 2}, {.scatter_dimension = -1, .axis_index_groups = pairs}),
      scattered("in groups, tiled", 4, {4, 2}, {.tiled = true, .axis_index_groups = pairs})};
  for (const std::int64_t n : {1, 2, 3}) {
    all.push_back(scattered("along 0", n, {n, 2}, {}));
    all.push_back(scattered("along -1", n, {2, 1, n}, {.scatter_dimension = -1}));
    all.push_back(
        scattered("along -2, tiled", n, {2 * n, 2}, {.scatter_dimension = -2, .tiled = true}));
    all.push_back(
        scattered("along 1, tiled", n, {1, 2 * n}, {.scatter_dimension = 1, .tiled = true}));
  }
  return all;
}

}  // namespace

std::vector<Case> derivative_cases() {
  std::vector<Case> cases{{"gradients at ties, 4 replicas", 4, ties},
                          {"gradients through trees of several dtypes, 1 replica", 1, mixed_trees},
                          {"gradients through trees of several dtypes, 3 replicas", 3, mixed_trees},
                          {"what requires no gradient, 2 replicas", 2, without_gradients}};
  for (const Example& example : examples()) {
    for (const std::int64_t replicas : example.replicas) {
      cases.push_back({str("derivatives of ", example.name, ", ", replicas, " replicas"), replicas,
                       [=] { check_derivatives(example.sizes, example.operation); }});
    }
  }
  return cases;
}

}  // namespace lockstep::testing
