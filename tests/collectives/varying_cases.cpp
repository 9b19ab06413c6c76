#include <cstdint>
#include <string>
#include <utility>
#include <vector>

#include <ATen/TensorOperators.h>
#include <ATen/ops/allclose.h>
#include <ATen/ops/arange.h>
#include <ATen/ops/full.h>
#include <ATen/ops/matmul.h>
#include <ATen/ops/tensor.h>
#include <ATen/ops/zeros_like.h>

#include "framework/base/text.h"
#include "framework/collectives/axis_index.h"
#include "framework/collectives/psum.h"
#include "framework/tree/grad.h"
#include "tests/collectives/cases.h"

namespace lockstep::testing {
namespace {

double weight() {
  return static_cast<double>(axis_index("i") + 1);
}

// The sum of all replicas' weights.
double weights() {
  const auto size = static_cast<double>(axis_size("i"));
  return size * (size + 1) / 2;
}

void expect_close(const Tensor& found, const Tensor& expected, const std::string& what) {
  expect(at::allclose(found, expected, 1e-12, 1e-12),
         lockstep::str(what, " is ", found, ", not ", expected));
}

Tensor sample() {
  return at::tensor({0.5, -1.25, 2.0}, at::kDouble);
}

// pvary's gradient is the sum over all replicas' uses, psum_invariant's is the replica's own.
void transposes() {
  const Tensor x = sample();
  const auto used = [](const Tensor& at) { return (pvary(at, "i") * weight()).sum(); };
  const auto summed = [](const Tensor& at) { return psum_invariant(at * weight(), "i").sum(); };
  expect_close(grad(used)(x), at::full({3}, weights(), at::kDouble), "the gradient of pvary");
  expect_close(grad(summed)(x), at::full({3}, weight(), at::kDouble),
               "the gradient of psum_invariant");
  expect_close(psum_invariant(x * weight(), "i"), x * weights(), "psum_invariant");
}

// A loss that is a sum over replicas, of parameters that they share: first and second derivative
// are those of one replica that computes it all.
void derivatives_of_a_shared_value() {
  const auto loss = [](const Tensor& at) {
    return psum_invariant((pvary(at, "i") * weight()).sin().sum(), "i");
  };
  const Tensor x = sample();
  Tensor first = at::zeros_like(x);
  Tensor second = at::zeros_like(x);
  for (std::int64_t r = 1; r <= axis_size("i"); ++r) {
    const auto w = static_cast<double>(r);
    first = first + w * (w * x).cos();
    second = second - w * w * (w * x).sin();
  }
  expect_close(grad(loss)(x), first, "the first derivative");
  expect_close(grad([&](const Tensor& at) { return grad(loss)(at).sum(); })(x), second,
               "the second derivative");
}

// Shards of the matrices give what one replica computes with the whole ones.
void tensor_parallel_mlp() {
  const std::int64_t n = axis_size("i");
  const auto numbers = [](std::int64_t count, double step) {
    return (at::arange(count, at::kDouble) * step).sin();
  };
  const Tensor x = numbers(6, 0.7).view({2, 3});
  const Tensor w1 = numbers(3 * 2 * n, 0.9).view({3, 2 * n});
  const Tensor w2 = numbers(2 * n * 2, 1.3).view({2 * n, 2});
  using Inputs = std::vector<Tensor>;
  const auto serial = [](const Inputs& at) {
    const Tensor y = at::matmul(at::matmul(at[0], at[1]).tanh(), at[2]);
    return (y * y).sum();
  };
  const auto parallel = [](const Inputs& at) {
    const Tensor hidden = at::matmul(pvary(at[0], "i"), at[1]).tanh();
    const Tensor y = psum_invariant(at::matmul(hidden, at[2]), "i");
    return (y * y).sum();
  };
  const std::int64_t me = axis_index("i");
  const auto [expected, whole] = value_and_grad(serial)(Inputs{x, w1, w2});
  const auto [loss, own] =
      value_and_grad(parallel)(Inputs{x, w1.narrow(1, 2 * me, 2), w2.narrow(0, 2 * me, 2)});
  expect_close(loss, expected, "the loss");
  expect_close(own[0], whole[0], "the gradient of the input");
  expect_close(own[1], whole[1].narrow(1, 2 * me, 2), "the gradient of the first matrix");
  expect_close(own[2], whole[2].narrow(0, 2 * me, 2), "the gradient of the second matrix");
}

void trees_and_memory() {
  const std::pair<Tensor, Tensor> tree(sample(), at::arange(3));
  const auto varying = pvary(tree, "i");
  expect(varying.first.equal(tree.first) && varying.second.equal(tree.second), "pvary of a tree");
  (void)varying.first.zero_();
  expect(tree.first.equal(sample()), "pvary's result shares memory with its operand");
  expect(psum_invariant(tree, "i").second.equal(tree.second * axis_size("i")),
         "psum_invariant of integers");
}

}  // namespace

std::vector<Case> varying_cases() {
  std::vector<Case> cases;
  const std::vector<std::int64_t> sizes{1, 2, 3, 4};
  add_cases(cases, "pvary and psum_invariant are each other's transpose", sizes, transposes);
  add_cases(cases, "pvary, psum_invariant: a sum of what replicas make of one value", sizes,
            derivatives_of_a_shared_value);
  add_cases(cases, "pvary, psum_invariant: a tensor-parallel MLP", sizes, tensor_parallel_mlp);
  add_cases(cases, "pvary and psum_invariant of trees", sizes, trees_and_memory);
  return cases;
}

}  // namespace lockstep::testing
