#pragma once

#include <algorithm>
#include <array>
#include <concepts>
#include <cstddef>
#include <functional>
#include <optional>
#include <source_location>
#include <string>
#include <tuple>
#include <type_traits>
#include <utility>
#include <vector>

#include "framework/tree/tree.h"

namespace lockstep {

/// The number of functions that this thread runs for value_and_grad, one inside another. Code that
/// runs a caller's function on other threads sets the caller's value there, so that derivatives
/// inside know that they are nested.
inline constinit thread_local int grad_depth = 0;

/// The arguments to differentiate by: `argnums<1>`, `argnums<0, 2>`, or `argnums<-1>`, the last.
template <int... Index>
struct Argnums {};
template <int... Index>
inline constexpr Argnums<Index...> argnums;

/// For functions that return more than their value: see value_and_grad.
struct HasAux {};
inline constexpr HasAux has_aux;

namespace tree_detail {
// `where` is the call that messages name.
std::pair<Tensor, Leaves> value_and_grad_of_leaves(const std::function<Tensor(const Leaves&)>& loss,
                                                   const Leaves& leaves,
                                                   const std::source_location& where);
/// True if these keep a graph: in an outer value_and_grad, or by leaves that require gradients.
bool differentiated_outside(const Leaves& leaves);
/// Throws ValueError if a leaf of this argument, named by its path, is not floating-point.
void check_differentiable(const Leaves& leaves,
                          const std::function<std::vector<std::string>()>& paths,
                          std::size_t argument, const std::source_location& where);

// The arguments of a call as grad sees them: its variables are those that `Index` names.
template <typename By, typename... Args>
struct Variables;
template <int... Index, typename... Args>
struct Variables<Argnums<Index...>, Args...> {
  static constexpr std::size_t count = sizeof...(Args);
  static constexpr std::array<std::size_t, sizeof...(Index)> places{
      ((Index < 0 ? count : 0) + static_cast<std::size_t>(Index))...};
  using Numbers = std::make_index_sequence<places.size()>;

  static constexpr bool has(std::size_t place) {
    return std::ranges::find(places, place) != places.end();
  }
  static constexpr bool are_arguments() {
    return !places.empty() && std::ranges::all_of(places, [](std::size_t place) {
      return place < count && std::ranges::count(places, place) == 1;
    });
  }
  static constexpr bool are_trees() {
    std::size_t place = 0;
    return ((!has(place++) || Tree<Args>)&&...);
  }
};

// True if F can be differentiated by these variables; a static_assert says why not.
template <typename By, typename F, typename... Args>
consteval bool check_call() {
  using V = Variables<By, Args...>;
  static_assert(V::are_arguments(),
                "lockstep: argnums<0> differentiates by the first argument, argnums<0, 2> by the "
                "first and the third, argnums<-1> by the last: one is not there, or stands twice");
  if constexpr (V::are_arguments()) {
    static_assert(V::are_trees(),
                  "lockstep: grad differentiates by a Tensor or a tree of them: make a number a "
                  "Tensor, name a struct's members with LOCKSTEP_TREE(Type, members...), or name "
                  "other arguments with argnums<1> or argnums<0, 2>");
    constexpr bool fits = Takes<F, const Args&...>;
    constexpr bool changes = !fits && Takes<F, Args&...>;
    static_assert(!changes,
                  "lockstep: a differentiated function takes its arguments by value or const "
                  "reference: const Tensor&, not Tensor&");
    static_assert(fits || changes,
                  "lockstep: the differentiated function cannot be called with these arguments: "
                  "there are too few or too many of them, or they are of other types");
    return V::are_trees() && fits;
  }
  return false;
}

// Stands for a refused call's gradient: without it, the compiler would go on about the result.
template <typename By>
using NoGradient = std::conditional_t<Variables<By>::places.size() == 1, Tensor,
                                      std::array<Tensor, Variables<By>::places.size()>>;

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

// The value of f (or its pair) and the gradient: a tree like the variable, or a tuple of trees.
template <bool with_aux, typename By, typename F, typename... Args>
auto value_and_gradient(const std::source_location& where, const F& f, const Args&... args) {
  using V = Variables<By, Args...>;
  const std::tuple<const Args&...> arguments(args...);
  Leaves leaves;
  std::array<std::size_t, V::count> begins{};  // of the variables' leaves
  const auto add = [&](const auto& tree, std::size_t place) {
    const Leaves own = tree_leaves(tree);
    check_differentiable(
        own, [&] { return paths_of(tree); }, place, where);
    begins[place] = leaves.size();
    leaves.insert(leaves.end(), own.begin(), own.end());
  };
  const auto argument = [&]<std::size_t place>(std::integral_constant<std::size_t, place>,
                                               const Leaves& of_variables) -> decltype(auto) {
    if constexpr (V::has(place)) {
      std::size_t next = begins[place];
      return take_tree(std::get<place>(arguments), of_variables, next);
    } else {
      return std::get<place>(arguments);
    }
  };
  const auto call = [&](const Leaves& variables) {
    return [&]<std::size_t... place>(std::index_sequence<place...>) {
      return [&](const auto&... each) {
        return std::invoke(f, each...);
      }(argument(std::integral_constant<std::size_t, place>(), variables)...);
    }
    (std::index_sequence_for<Args...>());
  };
  const auto gradient = [&]<std::size_t... number>(const Leaves& gradients,
                                                   std::index_sequence<number...>) {
    if constexpr (sizeof...(number) == 1) {
      return argument(std::integral_constant<std::size_t, V::places[0]>(), gradients);
    } else {
      return std::tuple(
          argument(std::integral_constant<std::size_t, V::places[number]>(), gradients)...);
    }
  };
  [&]<std::size_t... number>(std::index_sequence<number...>) {
    (add(std::get<V::places[number]>(arguments), V::places[number]), ...);
  }
  (typename V::Numbers());
  if constexpr (with_aux) {
    using Aux = std::remove_cvref_t<decltype(call(leaves).second)>;
    std::optional<Aux> aux;
    auto [value, gradients] = value_and_grad_of_leaves(
        [&](const Leaves& variables) -> Tensor {
          auto result = call(variables);
          aux.emplace(std::move(result.second));
          return std::move(result.first);
        },
        leaves, where);
    return std::pair(std::pair<Tensor, Aux>(std::move(value),
                                            detached_unless(differentiated_outside(leaves), *aux)),
                     gradient(gradients, typename V::Numbers()));
  } else {
    auto [value, gradients] = value_and_grad_of_leaves(
        [&](const Leaves& variables) -> Tensor { return call(variables); }, leaves, where);
    return std::pair(std::move(value), gradient(gradients, typename V::Numbers()));
  }
}

// Make the functions that value_and_grad and grad return.
template <bool with_aux, typename By, typename F>
auto value_and_gradient_of(F f, const std::source_location& where) {
  return [f = std::move(f), where]<typename... Args>(const Args&... args) {
    if constexpr (check_call<By, F, Args...>()) {
      return value_and_gradient<with_aux, By>(where, f, args...);
    } else {
      using NoValue = std::conditional_t<with_aux, std::pair<Tensor, Tensor>, Tensor>;
      return std::pair<NoValue, NoGradient<By>>();
    }
  };
}
template <bool with_aux, typename By, typename F>
auto gradient_of(F f, const std::source_location& where) {
  return [f = std::move(f), where]<typename... Args>(const Args&... args) {
    if constexpr (!check_call<By, F, Args...>()) {
      return std::conditional_t<with_aux, std::pair<NoGradient<By>, Tensor>, NoGradient<By>>();
    } else if constexpr (with_aux) {
      auto [value, gradient] = value_and_gradient<true, By>(where, f, args...);
      return std::pair(std::move(gradient), std::move(value.second));
    } else {
      return value_and_gradient<false, By>(where, f, args...).second;
    }
  };
}
}  // namespace tree_detail

/// Returns a function for f's value and its gradient: `value_and_grad(f)(tree, args…)` is the pair
/// of f(tree, args…), a floating-point tensor with one element, and a tree like its first argument
/// with the derivative by each leaf. A leaf that the value does not depend on has zeros. The
/// arguments are not changed, whether or not they require gradients themselves. As
/// jax.value_and_grad.
///
/// `value_and_grad(f, argnums<2>)` differentiates by the third argument instead, and `argnums<0,
/// 2>` by the first and the third: the gradient is then a tuple of trees, in that order.
///
/// Inside the function of another value_and_grad, value and gradient stay connected to all that the
/// outer one differentiates by (this tree, another argument, a captured tensor), so that
/// derivatives of derivatives work, mixed ones too; also across maps. Outside of any they keep no
/// graph, unless the variables require gradients themselves and gradients are not disabled: then
/// both keep it. Throws ValueError if the value is not one element or a leaf is not floating point.
///
/// With has_aux at the end, f returns a pair: its value, and an auxiliary result of any type
/// (metrics, for example), which is not differentiated. The function then returns f's pair and the
/// gradient. If the auxiliary result is a tree, its leaves keep a graph where value and gradient
/// do, and are detached elsewhere. If it is no tree, it is unchanged. As jax.value_and_grad(f,
/// has_aux=True).
///
/// LibTorch's exceptions in f or in its backward gain the place of this call, and the shapes of the
/// leaves.
template <typename F, int... Index>
[[nodiscard]] auto value_and_grad(F f, Argnums<Index...> /*by*/,
                                  std::source_location where = std::source_location::current()) {
  return tree_detail::value_and_gradient_of<false, Argnums<Index...>>(std::move(f), where);
}
template <typename F, int... Index>
[[nodiscard]] auto value_and_grad(F f, Argnums<Index...> /*by*/, HasAux /*aux*/,
                                  std::source_location where = std::source_location::current()) {
  return tree_detail::value_and_gradient_of<true, Argnums<Index...>>(std::move(f), where);
}
template <typename F>
[[nodiscard]] auto value_and_grad(F f,
                                  std::source_location where = std::source_location::current()) {
  return tree_detail::value_and_gradient_of<false, Argnums<0>>(std::move(f), where);
}
template <typename F>
[[nodiscard]] auto value_and_grad(F f, HasAux /*aux*/,
                                  std::source_location where = std::source_location::current()) {
  return tree_detail::value_and_gradient_of<true, Argnums<0>>(std::move(f), where);
}

/// The same for the gradient alone or, with has_aux, the gradient and the auxiliary result.
template <typename F, int... Index>
[[nodiscard]] auto grad(F f, Argnums<Index...> /*by*/,
                        std::source_location where = std::source_location::current()) {
  return tree_detail::gradient_of<false, Argnums<Index...>>(std::move(f), where);
}
template <typename F, int... Index>
[[nodiscard]] auto grad(F f, Argnums<Index...> /*by*/, HasAux /*aux*/,
                        std::source_location where = std::source_location::current()) {
  return tree_detail::gradient_of<true, Argnums<Index...>>(std::move(f), where);
}
template <typename F>
[[nodiscard]] auto grad(F f, std::source_location where = std::source_location::current()) {
  return tree_detail::gradient_of<false, Argnums<0>>(std::move(f), where);
}
template <typename F>
[[nodiscard]] auto grad(F f, HasAux /*aux*/,
                        std::source_location where = std::source_location::current()) {
  return tree_detail::gradient_of<true, Argnums<0>>(std::move(f), where);
}

}  // namespace lockstep
