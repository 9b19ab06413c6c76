#pragma once

#include <functional>
#include <optional>
#include <type_traits>
#include <utility>

#include "framework/tree/tree.h"

namespace lockstep {

/// How many functions this thread is running for value_and_grad, one inside another. Code that runs
/// a caller's function on other threads sets the caller's value there, so that derivatives inside
/// know that they are nested.
inline constinit thread_local int grad_depth = 0;

namespace tree_detail {
std::pair<Tensor, Leaves> value_and_grad_of_leaves(const std::function<Tensor(const Leaves&)>& loss,
                                                   const Leaves& leaves);
/// Whether derivatives by these leaves stay connected to an outer differentiation: within the
/// function of an outer value_and_grad, or by leaves that require gradients.
bool differentiated_outside(const Leaves& leaves);

// Whether F can be differentiated with these arguments; a static_assert says why not.
template <typename F, typename T, typename... Args>
consteval bool check_call() {
  constexpr bool fits = std::is_invocable_v<const F&, T, const Args&...>;
  static_assert(
      fits, "lockstep: the differentiated function cannot be called with these arguments: there "
            "are too few or too many of them, they are of other types, or it takes a Tensor& "
            "where it needs a const Tensor&");
  return fits;
}

// Auxiliary results are values: they keep a graph only where value and gradient do.
template <typename Aux>
Aux detached_unless(bool keep, const Aux& aux) {
  if constexpr (Tree<Aux>) {
    if (!keep) {
      return tree_map([](const Tensor& leaf) { return leaf.defined() ? leaf.detach() : leaf; },
                      aux);
    }
  }
  return aux;
}
}  // namespace tree_detail

/// For functions that return more than their value: see value_and_grad.
struct HasAux {};
inline constexpr HasAux has_aux;

/// A function that returns f's value and its gradient: `value_and_grad(f)(tree, args…)` is the pair
/// of f(tree, args…), a floating-point tensor with one element, and a tree like its first argument
/// with the derivative by each leaf. A leaf that the value does not depend on has zeros. The
/// arguments are not changed, whether or not they require gradients themselves. As
/// jax.value_and_grad.
///
/// Inside the function of another value_and_grad, value and gradient stay connected to whatever
/// that one differentiates by (this tree, another argument, a captured tensor), so that derivatives
/// of derivatives work, mixed ones too; also across maps. Outside of any they keep no graph, unless
/// the first argument requires gradients itself and gradients are not disabled: then both keep
/// theirs. Throws ValueError if the value is not one element or a leaf is not floating point.
template <typename F>
[[nodiscard]] auto value_and_grad(F f) {
  return [f = std::move(f)]<Tree T, typename... Args>(const T& tree, const Args&... args) {
    if constexpr (tree_detail::check_call<F, T, Args...>()) {
      auto [value, gradients] = tree_detail::value_and_grad_of_leaves(
          [&](const Leaves& leaves) -> Tensor {
            return std::invoke(f, tree_unflatten(tree, leaves), args...);
          },
          tree_leaves(tree));
      return std::pair<Tensor, T>(std::move(value), tree_unflatten(tree, gradients));
    }
  };
}

/// For a function that returns a pair: its value, and an auxiliary result of any type (metrics, for
/// example), which is not differentiated. Returns f's pair and the gradient. If the auxiliary
/// result is a tree, its leaves keep a graph where value and gradient do, and are detached
/// elsewhere. If it is no tree, it is unchanged. As jax.value_and_grad(f, has_aux=True).
template <typename F>
[[nodiscard]] auto value_and_grad(F f, HasAux) {
  return [f = std::move(f)]<Tree T, typename... Args>(const T& tree, const Args&... args) {
    if constexpr (tree_detail::check_call<F, T, Args...>()) {
      using Aux = std::remove_cvref_t<decltype(std::invoke(f, tree, args...).second)>;
      const auto leaves = tree_leaves(tree);
      std::optional<Aux> aux;
      auto [value, gradients] = tree_detail::value_and_grad_of_leaves(
          [&](const Leaves& variables) -> Tensor {
            auto result = std::invoke(f, tree_unflatten(tree, variables), args...);
            aux.emplace(std::move(result.second));
            return std::move(result.first);
          },
          leaves);
      return std::pair(
          std::pair<Tensor, Aux>(
              std::move(value),
              tree_detail::detached_unless(tree_detail::differentiated_outside(leaves), *aux)),
          tree_unflatten(tree, gradients));
    }
  };
}

/// The gradient alone; see value_and_grad.
template <typename F>
[[nodiscard]] auto grad(F f) {
  return [with_value = value_and_grad(std::move(f))]<Tree T, typename... Args>(
      const T& tree, const Args&... args) {
    if constexpr (tree_detail::check_call<F, T, Args...>()) {
      return with_value(tree, args...).second;
    }
  };
}

/// The gradient and what the function returns beside its value. As jax.grad(f, has_aux=True).
template <typename F>
[[nodiscard]] auto grad(F f, HasAux) {
  return [with_value = value_and_grad(std::move(f), has_aux)]<Tree T, typename... Args>(
      const T& tree, const Args&... args) {
    if constexpr (tree_detail::check_call<F, T, Args...>()) {
      auto [value, gradient] = with_value(tree, args...);
      return std::pair(std::move(gradient), std::move(value.second));
    }
  };
}

}  // namespace lockstep
