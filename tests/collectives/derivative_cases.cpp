#include <functional>
#include <tuple>

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
#include "framework/collectives/all_to_all.h"
#include "framework/collectives/axis_index.h"
#include "framework/collectives/pbroadcast.h"
#include "framework/collectives/ppermute.h"
#include "framework/collectives/psum.h"
#include "framework/collectives/ragged_all_to_all.h"
#include "framework/tree/grad.h"
#include "tests/collectives/cases.h"
#include "tests/collectives/oracle.h"

namespace lockstep::testing {
namespace {

constexpr std::uint64_t kSeed = 20240918;

using Sizes = std::vector<std::int64_t>;
using TensorFunction = std::function<Tensor(const Tensor&)>;

Tensor normal(const std::string& use, at::IntArrayRef sizes) {
  const Key key = Key(kSeed).fold(use).fold(static_cast<std::uint64_t>(axis_index("i")));
  return at::randn(sizes, at::detail::createCPUGenerator(key.bits()), at::kDouble);
}

// Returns how the sum of all replicas' f changes when one of them moves along its direction, by
// finite differences; one number a replica.
Tensor slopes(const TensorFunction& f, const Tensor& x, const Tensor& direction) {
  constexpr double kStep = 1e-5;
  const std::int64_t replicas = axis_size("i");
  const Tensor differences = at::zeros({replicas}, at::kDouble);
  for (std::int64_t mover = 0; mover < replicas; ++mover) {
    const Tensor step = direction * (mover == axis_index("i") ? kStep : 0);
    differences[mover].copy_(f(x + step) - f(x - step));
  }
  return psum(differences, "i") / (2 * kStep);
}

void check_derivative(const std::string& which, const TensorFunction& f, const Tensor& x) {
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

void check_derivatives(const Sizes& sizes, const TensorFunction& operation) {
  const TensorFunction loss = [&](const Tensor& at) {
    const Tensor result = operation(at * at);
    return (result.sin() * normal("weights", result.sizes())).sum();
  };
  const TensorFunction along = [&](const Tensor& at) {
    return (grad(loss)(at) * normal("along", sizes)).sum();
  };
  const Tensor x = normal("x", sizes);
  check_derivative("first", loss, x);
  check_derivative("second", along, x);
}

// Each replica's result weighs its index + 1; with four replicas that is 10 in all.
Tensor gradient_of(const TensorFunction& operation, const Tensor& x) {
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

// Leaves that have no derivative, and results that nothing depends on, do no harm.
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

// The same through the operators that move values.
void moved_mixed_trees() {
  const std::int64_t n = axis_size("i");
  const std::int64_t me = axis_index("i");
  SourceDestinationPairs ring;
  for (std::int64_t i = 0; i < n; ++i) ring.emplace_back(i, (i + 1) % n);
  const Tensor ones = at::ones({n}, at::kLong);
  const Tensor mine = at::full({n}, me, at::kLong);
  const auto f = [&](const std::vector<Tensor>& x) {
    const std::vector<Tensor> tree{x[0], at::ones({n}, at::kInt), x[1], at::ones({n}, at::kBool),
                                   x[2]};
    const auto exchanged = all_to_all(tree, "i", 0, 0, {.tiled = true});
    const auto passed = ppermute(tree, "i", ring);
    const auto shared = pbroadcast(tree, "i", 0);
    // Row j goes to replica j: all of the output is overwritten.
    const auto sent = ragged_all_to_all(tree, tree, ones.cumsum(0) - 1, ones, mine, ones, "i");
    // Each sends row 0 to all.
    const auto copied = ragged_all_to_all(tree, tree, ones - 1, ones, mine, ones, "i");
    Tensor sum = sent[1].sum() + shared[3].sum();
    for (const std::size_t leaf : {0, 4}) {
      sum = sum + exchanged[leaf].sum() + 2 * passed[leaf].sum() + 4 * shared[leaf].sum() +
            8 * sent[leaf].sum() + 16 * copied[leaf].sum();
    }
    return sum;
  };
  const std::vector<Tensor> x{at::ones({n}, at::kDouble), at::ones({n}, at::kDouble),
                              at::ones({n}, at::kFloat)};
  const auto gradients = grad(f)(x);
  const Tensor expected = at::full({n}, 1 + 2 + (me == 0 ? 4 * n : 0) + 8, at::kDouble);
  expected[0] += 16 * n;
  expect(gradients[0].equal(expected), "the first leaf's gradient");
  expect(gradients[1].equal(at::zeros({n}, at::kDouble)), "the gradient of a leaf without effect");
  expect(gradients[2].equal(expected.to(at::kFloat)), "the float32 leaf's gradient");
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
  TensorFunction operation;
};

// An example for so many replicas, with operands of these sizes.
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

Example split(const std::string& name, std::int64_t replicas, const Sizes& sizes,
              std::int64_t split_axis, std::int64_t concat_axis, const AllToAllOptions& options) {
  return {"all_to_all " + name, {replicas}, sizes, [=](const Tensor& x) {
            return all_to_all(x, "i", split_axis, concat_axis, options);
          }};
}

// Rows 0 to 4 of x are the operand, the others the output. The pieces that replicas send overlap
// (the last row goes to everyone), some are empty, and they do not fill the outputs.
Tensor ragged(const Tensor& x, const AxisIndexGroups& groups, std::int64_t place,
              std::int64_t size) {
  const auto numbers = [&](const auto& number) {
    std::vector<std::int64_t> values;
    for (std::int64_t peer = 0; peer < size; ++peer) values.push_back(number(peer));
    return at::tensor(values, at::kLong);
  };
  // Replica a sends replica b two rows, or one if a < b, or none if a is b + 1.
  const auto rows = [](std::int64_t a, std::int64_t b) { return a < b ? 1 : a == b + 1 ? 0 : 2; };
  return ragged_all_to_all(x.narrow(0, 0, 5), x.narrow(0, 5, 2 * size + 2),
                           numbers([&](std::int64_t to) { return 5 - rows(place, to); }),
                           numbers([&](std::int64_t to) { return rows(place, to); }),
                           numbers([&](std::int64_t) { return 2 * place + 1; }),
                           numbers([&](std::int64_t from) { return rows(from, place); }), "i",
                           {groups});
}

// The operators that move values.
std::vector<Example> moving_examples() {
  const AxisIndexGroups pairs{{0, 2}, {3, 1}};
  std::vector<Example> all{
      split("in groups", 4, {3, 2}, -1, 0, {.axis_index_groups = pairs}),
      split("in groups, tiled", 4, {4, 1}, 0, 1, {.tiled = true, .axis_index_groups = pairs}),
      {"pswapaxes", {2}, {3, 2, 1}, [](const Tensor& x) { return pswapaxes(x, "i", -2); }},
      {"ppermute",
       {4},
       {2, 3},
       [](const Tensor& x) {
         return ppermute(x, "i", {{0, 1}, {1, 2}, {3, 3}});
       }},
      {"ppermute to nobody", {1, 2}, {2}, [](const Tensor& x) { return ppermute(x, "i", {}); }},
      {"pshuffle",
       {3},
       {2, 3},
       [](const Tensor& x) {
         return pshuffle(x, "i", {2, 0, 1});
       }},
      {"pbroadcast",
       {1, 2, 3},
       {2, 3},
       [](const Tensor& x) { return pbroadcast(x, "i", axis_size("i") - 1); }},
      {"ragged_all_to_all in groups", {4}, {11, 2}, [=](const Tensor& x) {
         const std::int64_t me = axis_index("i");
         return ragged(x, pairs, me == 0 || me == 3 ? 0 : 1, 2);
       }}};
  for (const std::int64_t n : {1, 2, 3}) {
    all.push_back(split("0 to 0", n, {n, 2}, 0, 0, {}));
    all.push_back(split("0 to -1", n, {n, 2, 3}, 0, -1, {}));
    all.push_back(split("-1 to 0, tiled", n, {2, 2 * n}, -1, 0, {.tiled = true}));
    all.push_back({"ragged_all_to_all", {n}, {7 + 2 * n, 2}, [=](const Tensor& x) {
                     return ragged(x, {}, axis_index("i"), n);
                   }});
  }
  return all;
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
                          {"what requires no gradient, 2 replicas", 2, without_gradients}};
  add_cases(cases, "gradients through trees of several dtypes", {1, 3}, mixed_trees);
  add_cases(cases, "gradients through moved trees", {1, 3}, moved_mixed_trees);
  std::vector<Example> all = examples();
  const std::vector<Example> moving = moving_examples();
  all.insert(all.end(), moving.begin(), moving.end());
  for (const Example& example : all) {
    add_cases(cases, "derivatives of " + example.name, example.replicas,
              [=] { check_derivatives(example.sizes, example.operation); });
  }
  return cases;
}

}  // namespace lockstep::testing
