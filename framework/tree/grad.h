#pragma once

#include <functional>
#include <utility>
#include <vector>

#include "framework/tree/tree.h"

namespace lockstep {

namespace tree_detail {
using LossOfLeaves = std::function<Tensor(const std::vector<Tensor>&)>;
std::pair<Tensor, std::vector<Tensor>> value_and_grad_of_leaves(const LossOfLeaves& loss,
                                                                const std::vector<Tensor>& leaves);
}  // namespace tree_detail

/// A function that returns f's value and its gradient: `value_and_grad(f)(tree, args…)` is the pair
/// of f(tree, args…), a floating-point tensor with one element, and a tree like its first argument
/// with the derivative by each leaf. A leaf that the value does not depend on has zeros. The
/// arguments are not changed, whether or not they require gradients themselves. As
/// jax.value_and_grad.
///
/// Inside another differentiation (the tree requires gradients already) value and gradient stay
/// connected to it, so that derivatives of derivatives work. Throws ValueError if the value is not
/// one element or a leaf is not floating point.
template <typename F>
[[nodiscard]] auto value_and_grad(F f) {
  return [f = std::move(f)]<Tree T, typename... Args>(const T& tree, const Args&... args) {
    auto [value, gradients] = tree_detail::value_and_grad_of_leaves(
        [&](const std::vector<Tensor>& leaves) -> Tensor {
          return std::invoke(f, tree_unflatten(tree, leaves), args...);
        },
        tree_leaves(tree));
    return std::pair<Tensor, T>(std::move(value), tree_unflatten(tree, gradients));
  };
}

/// The gradient alone; see value_and_grad.
template <typename F>
[[nodiscard]] auto grad(F f) {
  return [with_value = value_and_grad(std::move(f))]<Tree T, typename... Args>(
      const T& tree, const Args&... args) {
    return with_value(tree, args...).second;
  };
}

}  // namespace lockstep
