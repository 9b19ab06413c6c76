#pragma once

#include <algorithm>
#include <array>
#include <concepts>
#include <cstddef>
#include <functional>
#include <map>
#include <optional>
#include <string>
#include <string_view>
#include <tuple>
#include <type_traits>
#include <unordered_map>
#include <utility>
#include <vector>

#include <ATen/core/Tensor.h>

#include "framework/base/errors.h"
#include "framework/base/number_text.h"
#include "framework/base/text.h"

namespace lockstep {

using Tensor = at::Tensor;
using Leaves = std::vector<Tensor>;

/// The result of static_argument().
template <typename T>
struct StaticArgument {
  T value;
};

/// Marks `x`, whose class is no tree, as an argument of a map or a part of a tree that every
/// replica gets whole. A mapped function takes it as a `const T&`:
///
///   pmap(step)(parameters, static_argument(config))
///
/// The map's function gets `x` itself, which is not copied unless it is a temporary.
template <typename T>
[[nodiscard]] auto static_argument(T&& x) {
  using Held = std::conditional_t<std::is_lvalue_reference_v<T>, const std::remove_cvref_t<T>&,
                                  std::remove_cvref_t<T>>;
  return StaticArgument<Held>{std::forward<T>(x)};
}

namespace tree_detail {

template <typename T>
concept NamedStruct = requires(T& value) {
  lockstep_tree_members(value);
};

// True if T has an operator(), even an overloaded one or a template. A class that inherits from T
// and OtherCall has two then, so that the name is ambiguous.
struct OtherCall {
  void operator()();
};
template <typename T>
struct WithOtherCall : T, OtherCall {};
template <typename T>
concept HasCall = requires {
  &T::operator();
}
|| (std::is_class_v<T> && !std::is_final_v<T> && !requires { &WithOtherCall<T>::operator(); });

template <typename T>
concept Text = std::convertible_to<const T&, std::string_view> && !std::is_null_pointer_v<T>;
// Types of keys in a tree's maps. Their order is the same in every process.
template <typename T>
concept Key = std::integral<T> || std::is_enum_v<T> || std::same_as<T, std::string>;

// True if T is a class made from the template Of.
template <typename T, template <typename...> typename Of>
inline constexpr bool is_a = false;
template <template <typename...> typename Of, typename... Ts>
inline constexpr bool is_a<Of<Ts...>, Of> = true;

template <typename T>
concept Map = Key<typename T::key_type> &&(is_a<T, std::map> || is_a<T, std::unordered_map>);
template <typename T>
inline constexpr bool is_sequence = is_a<T, std::vector>;
template <typename T, std::size_t N>
inline constexpr bool is_sequence<std::array<T, N>> = true;
template <typename T>
inline constexpr bool is_tuple = is_a<T, std::tuple> || is_a<T, std::pair>;

// A type's role in a tree: it has tensors, it is static, or its role is unknown.
enum class Kind { tree, fixed, unknown };

template <typename T>
inline constexpr bool is_fixed = std::is_scalar_v<T> || std::is_function_v<T> || Text<T> ||
                                 is_a<T, StaticArgument> || HasCall<T>;

template <typename T>
consteval Kind kind_of();

template <template <typename...> typename Tuple, typename... Parts>
consteval Kind kind_of_parts(std::type_identity<Tuple<Parts...>>) {
  if (((kind_of<Parts>() == Kind::unknown) || ...)) return Kind::unknown;
  const bool fixed = sizeof...(Parts) > 0 && ((kind_of<Parts>() == Kind::fixed) && ...);
  return fixed ? Kind::fixed : Kind::tree;
}

template <typename T>
consteval Kind kind_of() {
  if constexpr (std::is_same_v<T, Tensor> || NamedStruct<T>) {
    return Kind::tree;
  } else if constexpr (Map<T>) {
    return kind_of<typename T::mapped_type>();
  } else if constexpr (is_sequence<T> || is_a<T, std::optional>) {
    return kind_of<typename T::value_type>();
  } else if constexpr (is_tuple<T>) {
    return kind_of_parts(std::type_identity<T>());
  } else if constexpr (!std::is_same_v<T, std::unwrap_reference_t<T>>) {
    return Kind::unknown;
  } else if constexpr (std::is_pointer_v<T>) {
    // A pointer to tensors may mean one value for all replicas, or a part for each: refused.
    using To = std::remove_cv_t<std::remove_pointer_t<T>>;
    return std::is_same_v<To, Tensor> || NamedStruct<To> ? Kind::unknown : Kind::fixed;
  } else {
    return is_fixed<std::remove_const_t<T>> ? Kind::fixed : Kind::unknown;
  }
}

template <typename T>
inline constexpr Kind kind = kind_of<std::remove_cvref_t<T>>();

}  // namespace tree_detail

/// Trees of tensors. A tree is a Tensor; a std::vector, std::array, std::map, std::unordered_map,
/// std::pair, std::tuple or std::optional of trees; or a struct named once with
///
///   LOCKSTEP_TREE(Type, member, member, …)
///
/// at namespace scope, in the namespace that the type is in, after it; no semicolon is needed.
/// Leaves are the tensors, in the order of members, elements and (in both kinds of maps) keys,
/// which are strings, integers or enums.
///
/// Numbers, enums, strings, pointers and callables are static, and so are containers, pairs and
/// tuples of nothing else. Beside trees in a pair, tuple or struct they are no leaves: operations
/// on trees pass them on unchanged. Numbers, enums and strings must be equal where trees must be
/// built alike. Other types are neither tree nor static; maps refuse them: see static_argument().
template <typename T>
concept Tree = tree_detail::kind<T>
== tree_detail::Kind::tree;

namespace tree_detail {

template <typename T>
inline constexpr bool is_known = kind<T> != Kind::unknown;
#define LOCKSTEP_DETAIL_UNKNOWN                                                                   \
  "lockstep: this class is neither a tree nor static: name its members with LOCKSTEP_TREE(Type, " \
  "members...), or pass static_argument(x)"

// Calls visit(key, value) for each entry of a map, in the order of keys.
template <typename Map, typename Visit>
void for_each_in_order(Map& map, const Visit& visit) {
  if constexpr (requires { typename Map::hasher; }) {
    auto entries = mapped(map, [](auto& entry) { return &entry; });
    std::sort(entries.begin(), entries.end(),
              [](const auto* a, const auto* b) { return a->first < b->first; });
    for (auto* const entry : entries) visit(entry->first, entry->second);
  } else {
    for (auto& entry : map) visit(entry.first, entry.second);
  }
}

// Types whose parts have several types: a named struct, or a tuple. T may be const.
template <typename T>
concept HasParts = NamedStruct<T> || is_tuple<std::remove_const_t<T>>;

// Returns a value's parts, as a tuple or pair.
template <HasParts T>
decltype(auto) parts_of(T& value) {
  if constexpr (NamedStruct<T>) {
    return lockstep_tree_members(value);
  } else {
    return (value);
  }
}

// Returns the names in LOCKSTEP_TREE's list of members.
inline std::vector<std::string> split_names(std::string_view list) {
  std::vector<std::string> names(1);
  for (const char letter : list) {
    if (letter == ',') {
      names.emplace_back();
    } else if (letter != ' ') {
      names.back() += letter;
    }
  }
  return names;
}

// Returns a part's name in messages: a struct's member, or a place in a tuple.
template <HasParts T>
std::string part_name(std::size_t place) {
  if constexpr (requires(const T* type) { lockstep_tree_names(type); }) {
    static const auto names = split_names(lockstep_tree_names(static_cast<const T*>(nullptr)));
    return names.at(place);
  } else {
    return std::to_string(place);
  }
}

// Calls visit(part) for each leaf and static value that is no container, in order. T may be const.
template <typename T, typename Visit>
void for_each_part(T& tree, const Visit& visit) {
  using Plain = std::remove_const_t<T>;
  static_assert(is_known<T>, LOCKSTEP_DETAIL_UNKNOWN);
  if constexpr (HasParts<T>) {
    std::apply([&](auto&... parts) { (for_each_part(parts, visit), ...); }, parts_of(tree));
  } else if constexpr (is_a<Plain, std::optional>) {
    if (tree.has_value()) for_each_part(*tree, visit);
  } else if constexpr (Map<Plain>) {
    for_each_in_order(tree, [&](const auto&, auto& value) { for_each_part(value, visit); });
  } else if constexpr (is_sequence<Plain> && kind<T> == Kind::fixed) {
    for (const auto& element : std::as_const(tree)) for_each_part(element, visit);
  } else if constexpr (is_sequence<Plain>) {
    for (auto& element : tree) for_each_part(element, visit);
  } else if constexpr (is_known<T>) {
    visit(tree);
  }
}

// Calls visit(leaf) on every leaf, in order. T may be const.
template <typename T, typename Visit>
void for_each_leaf(T& tree, const Visit& visit) {
  if constexpr (kind<T> != Kind::fixed) {
    for_each_part(tree, [&](auto& part) {
      if constexpr (std::is_same_v<std::remove_cvref_t<decltype(part)>, Tensor>) visit(part);
    });
  }
}

template <typename T>
Leaves leaves_of(const T& tree) {
  Leaves leaves;
  for_each_leaf(tree, [&](const Tensor& leaf) { leaves.push_back(leaf); });
  return leaves;
}

// Types of static values that must be equal in trees that are built alike.
template <typename T>
concept Compared = std::is_arithmetic_v<T> || std::is_enum_v<T> || Text<T>;

template <Text T>
std::string_view view_of(const T& text) {
  if constexpr (std::is_pointer_v<T>) {
    return text == nullptr ? std::string_view() : std::string_view(text);
  } else {
    return text;
  }
}

template <Compared T>
bool equal(const T& a, const T& b) {
  if constexpr (std::is_floating_point_v<T>) {
    return a == b || (a != a && b != b);
  } else if constexpr (Text<T>) {
    return view_of(a) == view_of(b);
  } else {
    return a == b;
  }
}

// Returns the value as messages show it. Different values have different texts.
template <Compared T>
std::string text_of_value(const T& value) {
  if constexpr (Text<T>) {
    return "'" + std::string(view_of(value)) + "'";
  } else if constexpr (std::is_same_v<T, bool>) {
    return value ? "true" : "false";
  } else if constexpr (std::is_enum_v<T>) {
    return std::to_string(static_cast<std::underlying_type_t<T>>(value));
  } else if constexpr (std::is_integral_v<T>) {
    return std::to_string(value);
  } else {
    return shortest_text(value);
  }
}

// True if a tree's type, or the type of a part of it, is one of These.
template <template <typename> typename These, typename T, typename... Around>
consteval bool has_any() {
  const auto in_any_of = []<template <typename...> typename Tuple, typename... Parts>(
                             std::type_identity<Tuple<Parts...>>) {
    return (has_any<These, std::remove_cvref_t<Parts>, T, Around...>() || ...);
  };
  if constexpr ((std::is_same_v<T, Around> || ...)) {
    return false;  // T is a struct that has itself as a part
  } else if constexpr (These<T>::value) {
    return true;
  } else if constexpr (HasParts<T>) {
    using Parts = std::remove_cvref_t<decltype(parts_of(std::declval<T&>()))>;
    return in_any_of(std::type_identity<Parts>());
  } else if constexpr (Map<T>) {
    return has_any<These, typename T::mapped_type, T, Around...>();
  } else if constexpr (is_a<T, std::optional> || is_sequence<T>) {
    return has_any<These, typename T::value_type, T, Around...>();
  } else {
    return false;
  }
}

template <typename T>
using IsCompared = std::bool_constant<Compared<T>>;
// True if trees of the type may have static values that are compared.
template <typename T>
consteval bool has_values() {
  return has_any<IsCompared, T>();
}

// Returns the texts of the tree's static values that are compared, in order.
template <typename T>
std::vector<std::string> texts_of_values(const T& tree) {
  std::vector<std::string> texts;
  for_each_part(tree, [&]<typename Part>(const Part& part) {
    if constexpr (Compared<Part>) texts.push_back(text_of_value(part));
  });
  return texts;
}

// Throws ValueError, which says where, if `other` is not built like `like`.
template <typename T>
void check_same_structure(const T& like, const T& other, const std::string& where) {
  const auto differ = [&](const std::string& difference) {
    throw ValueError(str("trees differ in structure at ", where, ": ", difference));
  };
  if constexpr (HasParts<T>) {
    const auto& a = parts_of(like);
    const auto& b = parts_of(other);
    [&]<std::size_t... I>(std::index_sequence<I...>) {
      (check_same_structure(std::get<I>(a), std::get<I>(b), str(where, ".", part_name<T>(I))), ...);
    }
    (std::make_index_sequence<std::tuple_size_v<std::remove_cvref_t<decltype(a)>>>());
  } else if constexpr (is_a<T, std::optional>) {
    if (like.has_value() != other.has_value()) differ("one is there, the other is not");
    if (like.has_value()) check_same_structure(*like, *other, where);
  } else if constexpr (Map<T>) {
    if (like.size() != other.size()) differ(str(like.size(), " and ", other.size(), " entries"));
    for_each_in_order(like, [&](const auto& key, const auto& value) {
      const std::string name = text_of_value(key);
      const auto found = other.find(key);
      if (found == other.end()) differ(str("one has the key ", name, ", the other has not"));
      check_same_structure(value, found->second, str(where, "[", name, "]"));
    });
  } else if constexpr (is_sequence<T>) {
    if (like.size() != other.size()) differ(str(like.size(), " and ", other.size(), " elements"));
    for (std::size_t i = 0; i < like.size(); ++i) {
      check_same_structure(like[i], other[i], str(where, "[", i, "]"));
    }
  } else if constexpr (Compared<T>) {
    if (!equal(like, other)) differ(str(text_of_value(like), " and ", text_of_value(other)));
  }
}

// Adds the path of each leaf, in order, to `paths`: "['a'][1]", ".weight" or, in a tuple, ".0". No
// streams here: for some operands this runs in every call of a collective.
template <typename T>
void add_paths(const T& tree, const std::string& path, std::vector<std::string>& paths) {
  if constexpr (std::is_same_v<T, Tensor>) {
    paths.push_back(path);
  } else if constexpr (kind<T> == Kind::fixed) {
    return;
  } else if constexpr (HasParts<T>) {
    std::size_t place = 0;
    const auto add = [&](const auto& part) {
      add_paths(part, path + "." + part_name<T>(place++), paths);
    };
    std::apply([&](const auto&... parts) { (add(parts), ...); }, parts_of(tree));
  } else if constexpr (is_a<T, std::optional>) {
    if (tree.has_value()) add_paths(*tree, path, paths);
  } else if constexpr (Map<T>) {
    for_each_in_order(tree, [&](const auto& key, const auto& value) {
      add_paths(value, path + "[" + text_of_value(key) + "]", paths);
    });
  } else {
    std::size_t place = 0;
    for (const auto& element : tree) {
      add_paths(element, path + "[" + std::to_string(place++) + "]", paths);
    }
  }
}

template <typename T>
std::vector<std::string> paths_of(const T& tree) {
  std::vector<std::string> paths;
  add_paths(tree, "", paths);
  return paths;
}

// Returns the name of leaf `index` of a tree in messages: "leaf ['a'][1]". A tree that is one leaf
// has "leaf 0".
inline std::string leaf_name(const std::vector<std::string>& paths, std::size_t index) {
  const bool has_path = index < paths.size() && !paths[index].empty();
  return "leaf " + (has_path ? paths[index] : std::to_string(index));
}

}  // namespace tree_detail

/// Returns the tree's leaves in order. They are the tree's tensors, not copies.
template <Tree T>
[[nodiscard]] Leaves tree_leaves(const T& tree) {
  return tree_detail::leaves_of(tree);
}

/// Returns a tree like `tree_like` of the given leaves. Throws ValueError unless they are as many.
template <Tree T>
[[nodiscard]] T tree_unflatten(const T& tree_like, const Leaves& leaves) {
  T tree = tree_like;
  std::size_t used = 0;
  tree_detail::for_each_leaf(tree, [&](Tensor& leaf) {
    if (used < leaves.size()) leaf = leaves[used];
    ++used;
  });
  if (used != leaves.size()) {
    throw ValueError(
        str("tree_unflatten: ", counted(static_cast<std::int64_t>(leaves.size()), "leaf", "leaves"),
            " for a tree that has ", used));
  }
  return tree;
}

namespace tree_detail {
// True if an F can be called with these. Avoids std::is_invocable where it can: the compiler would
// tell of each step in it wherever the body of a generic F has an error.
template <typename F, typename... Args>
concept Takes = (std::is_member_pointer_v<F> && std::is_invocable_v<const F&, Args...>) ||
                requires(const F& f) {
  f(std::declval<Args>()...);
};

// Returns a tree built like `like` of the leaves from `next` on, and moves `next` behind them.
template <Tree T>
T take_tree(const T& like, const Leaves& leaves, std::size_t& next) {
  T tree = like;
  for_each_leaf(tree, [&](Tensor& leaf) { leaf = leaves[next++]; });
  return tree;
}
}  // namespace tree_detail

/// Returns a tree of f(leaf, leaves of `rest`…). Throws ValueError, with where, unless built alike.
template <typename F, Tree T, std::same_as<T>... Rest>
[[nodiscard]] T tree_map(F&& f, const T& tree, const Rest&... rest) {
  (tree_detail::check_same_structure(tree, rest, "the root"), ...);
  const std::array<Leaves, sizeof...(Rest)> others{tree_leaves(rest)...};
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

// LOCKSTEP_DETAIL_EACH expands itself once for each member.
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

/// Makes `Type` a tree of the listed members, trees and static values (up to 27). Others stay as
/// they are, tensors too: they are no leaves.
#define LOCKSTEP_TREE(Type, ...)                                                   \
  [[maybe_unused]] inline auto lockstep_tree_members(Type& lockstep_value) {       \
    return std::tie(LOCKSTEP_DETAIL_EXPAND(LOCKSTEP_DETAIL_EACH(__VA_ARGS__)));    \
  }                                                                                \
  [[maybe_unused]] inline auto lockstep_tree_members(const Type& lockstep_value) { \
    return std::tie(LOCKSTEP_DETAIL_EXPAND(LOCKSTEP_DETAIL_EACH(__VA_ARGS__)));    \
  }                                                                                \
  [[maybe_unused]] inline const char* lockstep_tree_names(const Type*) {           \
    return #__VA_ARGS__;                                                           \
  }
