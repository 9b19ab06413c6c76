#pragma once

#include <array>
#include <concepts>
#include <cstddef>
#include <functional>
#include <map>
#include <optional>
#include <string>
#include <tuple>
#include <type_traits>
#include <utility>
#include <vector>

#include <ATen/core/Tensor.h>

#include "framework/base/errors.h"
#include "framework/base/text.h"

namespace lockstep {

using Tensor = at::Tensor;

namespace tree_detail {

template <typename T>
concept NamedStruct = requires(T& value) {
  lockstep_tree_members(value);
};

template <typename T>
struct IsTree : std::bool_constant<NamedStruct<T>> {};
template <>
struct IsTree<Tensor> : std::true_type {};
template <typename T>
struct IsTree<std::vector<T>> : IsTree<T> {};
template <typename T, std::size_t N>
struct IsTree<std::array<T, N>> : IsTree<T> {};
template <typename T>
struct IsTree<std::map<std::string, T>> : IsTree<T> {};
template <typename T>
struct IsTree<std::optional<T>> : IsTree<T> {};
template <typename A, typename B>
struct IsTree<std::pair<A, B>> : std::bool_constant<IsTree<A>::value && IsTree<B>::value> {};
template <typename... Ts>
struct IsTree<std::tuple<Ts...>> : std::bool_constant<(IsTree<Ts>::value && ...)> {};

}  // namespace tree_detail

/// Trees of tensors. A tree is a Tensor; a std::vector, std::array, std::map<std::string, …>,
/// std::pair, std::tuple or std::optional of trees; or a struct named once with
///
///   LOCKSTEP_TREE(Type, member, member, …)
///
/// at namespace scope, in the namespace that the type is in, after it; no semicolon is needed.
/// Leaves are the tensors, in the order of members, elements and (in maps) keys.
template <typename T>
concept Tree = tree_detail::IsTree<std::remove_cvref_t<T>>::value;

namespace tree_detail {

template <typename T>
inline constexpr bool is_map = false;
template <typename T>
inline constexpr bool is_map<std::map<std::string, T>> = true;
template <typename T>
inline constexpr bool is_optional = false;
template <typename T>
inline constexpr bool is_optional<std::optional<T>> = true;
template <typename T>
inline constexpr bool is_tuple = false;
template <typename... Ts>
inline constexpr bool is_tuple<std::tuple<Ts...>> = true;
template <typename A, typename B>
inline constexpr bool is_tuple<std::pair<A, B>> = true;

// Calls visit(leaf) on every leaf, in order. T may be const.
template <typename T, typename Visit>
void for_each_leaf(T& tree, Visit&& visit) {
  using Plain = std::remove_const_t<T>;
  if constexpr (std::is_same_v<Plain, Tensor>) {
    visit(tree);
  } else if constexpr (NamedStruct<Plain>) {
    std::apply([&](auto&... members) { (for_each_leaf(members, visit), ...); },
               lockstep_tree_members(tree));
  } else if constexpr (is_tuple<Plain>) {
    std::apply([&](auto&... elements) { (for_each_leaf(elements, visit), ...); }, tree);
  } else if constexpr (is_optional<Plain>) {
    if (tree.has_value()) for_each_leaf(*tree, visit);
  } else if constexpr (is_map<Plain>) {
    for (auto& entry : tree) for_each_leaf(entry.second, visit);
  } else {
    for (auto& element : tree) for_each_leaf(element, visit);
  }
}

// Throws ValueError if `other` is not built like `like`: it says where.
template <typename T>
void check_same_structure(const T& like, const T& other, const std::string& where) {
  const auto differ = [&](const std::string& difference) {
    throw ValueError(str("trees differ in structure at ", where, ": ", difference));
  };
  if constexpr (std::is_same_v<T, Tensor>) {
    return;
  } else if constexpr (NamedStruct<T>) {
    const auto a = lockstep_tree_members(like);
    const auto b = lockstep_tree_members(other);
    [&]<std::size_t... I>(std::index_sequence<I...>) {
      (check_same_structure(std::get<I>(a), std::get<I>(b), str(where, ".", I)), ...);
    }
    (std::make_index_sequence<std::tuple_size_v<decltype(a)>>());
  } else if constexpr (is_tuple<T>) {
    [&]<std::size_t... I>(std::index_sequence<I...>) {
      (check_same_structure(std::get<I>(like), std::get<I>(other), str(where, ".", I)), ...);
    }
    (std::make_index_sequence<std::tuple_size_v<T>>());
  } else if constexpr (is_optional<T>) {
    if (like.has_value() != other.has_value()) differ("one is there, the other is not");
    if (like.has_value()) check_same_structure(*like, *other, where);
  } else if constexpr (is_map<T>) {
    if (like.size() != other.size()) differ(str(like.size(), " and ", other.size(), " entries"));
    for (auto a = like.begin(), b = other.begin(); a != like.end(); ++a, ++b) {
      if (a->first != b->first) differ(str("keys '", a->first, "' and '", b->first, "'"));
      check_same_structure(a->second, b->second, str(where, "['", a->first, "']"));
    }
  } else {
    if (like.size() != other.size()) differ(str(like.size(), " and ", other.size(), " elements"));
    for (std::size_t i = 0; i < like.size(); ++i) {
      check_same_structure(like[i], other[i], str(where, "[", i, "]"));
    }
  }
}

}  // namespace tree_detail

/// The tree's leaves in order. They are the tree's tensors, not copies.
template <Tree T>
[[nodiscard]] std::vector<Tensor> tree_leaves(const T& tree) {
  std::vector<Tensor> leaves;
  tree_detail::for_each_leaf(tree, [&](const Tensor& leaf) { leaves.push_back(leaf); });
  return leaves;
}

/// A tree built like `tree_like` with the given leaves in it. Throws ValueError if there are not as
/// many as `tree_like` has.
template <Tree T>
[[nodiscard]] T tree_unflatten(const T& tree_like, const std::vector<Tensor>& leaves) {
  T tree = tree_like;
  std::size_t used = 0;
  tree_detail::for_each_leaf(tree, [&](Tensor& leaf) {
    if (used < leaves.size()) leaf = leaves[used];
    ++used;
  });
  if (used != leaves.size()) {
    throw ValueError(str("tree_unflatten: ", leaves.size(), " leaves for a tree that has ", used));
  }
  return tree;
}

/// A tree whose leaves are f(leaf, corresponding leaves of `rest`…). Throws ValueError, saying
/// where, if the trees are not built alike.
template <typename F, Tree T, std::same_as<T>... Rest>
[[nodiscard]] T tree_map(F&& f, const T& tree, const Rest&... rest) {
  (tree_detail::check_same_structure(tree, rest, "the root"), ...);
  const std::array<std::vector<Tensor>, sizeof...(Rest)> others{tree_leaves(rest)...};
  T result = tree;
  std::size_t index = 0;
  tree_detail::for_each_leaf(result, [&](Tensor& leaf) {
    leaf = [&]<std::size_t... I>(std::index_sequence<I...>) {
      return std::invoke(f, std::as_const(leaf), others[I][index]...);
    }
    (std::index_sequence_for<Rest...>());
    ++index;
  });
  return result;
}

}  // namespace lockstep

// Members one by one: LOCKSTEP_DETAIL_EACH expands itself once for each of them.
#define LOCKSTEP_DETAIL_PARENS ()
#define LOCKSTEP_DETAIL_EXPAND(...) \
  LOCKSTEP_DETAIL_EXPAND3(LOCKSTEP_DETAIL_EXPAND3(LOCKSTEP_DETAIL_EXPAND3(__VA_ARGS__)))
#define LOCKSTEP_DETAIL_EXPAND3(...) \
  LOCKSTEP_DETAIL_EXPAND2(LOCKSTEP_DETAIL_EXPAND2(LOCKSTEP_DETAIL_EXPAND2(__VA_ARGS__)))
#define LOCKSTEP_DETAIL_EXPAND2(...) \
  LOCKSTEP_DETAIL_EXPAND1(LOCKSTEP_DETAIL_EXPAND1(LOCKSTEP_DETAIL_EXPAND1(__VA_ARGS__)))
#define LOCKSTEP_DETAIL_EXPAND1(...) __VA_ARGS__
#define LOCKSTEP_DETAIL_EACH(member, ...) \
  lockstep_value.member __VA_OPT__(, LOCKSTEP_DETAIL_AGAIN LOCKSTEP_DETAIL_PARENS(__VA_ARGS__))
#define LOCKSTEP_DETAIL_AGAIN() LOCKSTEP_DETAIL_EACH

/// Makes `Type` a tree of the listed members, which must be trees themselves (up to 27).
#define LOCKSTEP_TREE(Type, ...)                                                   \
  [[maybe_unused]] inline auto lockstep_tree_members(Type& lockstep_value) {       \
    return std::tie(LOCKSTEP_DETAIL_EXPAND(LOCKSTEP_DETAIL_EACH(__VA_ARGS__)));    \
  }                                                                                \
  [[maybe_unused]] inline auto lockstep_tree_members(const Type& lockstep_value) { \
    return std::tie(LOCKSTEP_DETAIL_EXPAND(LOCKSTEP_DETAIL_EACH(__VA_ARGS__)));    \
  }
