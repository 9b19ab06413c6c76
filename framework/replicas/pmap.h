#pragma once

#include <chrono>
#include <cstdint>
#include <functional>
#include <initializer_list>
#include <optional>
#include <string>
#include <tuple>
#include <type_traits>
#include <utility>
#include <vector>

#include "framework/replicas/team.h"
#include "framework/tree/tree.h"

namespace lockstep {

/// Where results of replicas are stacked: one dimension for all of them, or one for each element of
/// a returned tuple; std::nullopt gives replica 0's alone.
class OutAxes {
 public:
  OutAxes(std::int64_t axis) : axes_{axis}, for_all_(true) {}       // NOLINT
  OutAxes(std::nullopt_t) : axes_{std::nullopt}, for_all_(true) {}  // NOLINT
  OutAxes(std::initializer_list<std::optional<std::int64_t>> axes) : axes_(axes) {}

  /// The axis of result `element` of `elements`. Throws ValueError if there is not one for each.
  [[nodiscard]] std::optional<std::int64_t> of(std::size_t element, std::size_t elements) const;

 private:
  std::vector<std::optional<std::int64_t>> axes_;
  bool for_all_ = false;
};

struct PmapOptions {
  /// The name by which the function's collectives call the replicas.
  std::string axis_name = "i";
  /// One entry an argument: the dimension that is cut into replicas, or std::nullopt to give every
  /// replica the whole argument. Left out, every tree is cut along dimension 0.
  std::vector<std::optional<std::int64_t>> in_axes = {};
  OutAxes out_axes = 0;
  /// The number of replicas in this process; 0: what the arguments' lengths say.
  std::int64_t axis_size = 0;
  /// Math threads of each replica; 0: the host's cores / its replicas, at least 1.
  std::int64_t threads_per_replica = 0;
  /// How long a replica waits for the others in a collective.
  std::chrono::milliseconds timeout{60'000};
};

namespace pmap_detail {

/// An argument as the checks see it.
struct Argument {
  std::optional<std::int64_t> axis;
  bool is_tree;
  std::vector<Tensor> leaves;
};

/// Fills in what in_axes leaves out and checks it. Returns the number of replicas.
std::int64_t plan(const PmapOptions& options, std::vector<Argument>& arguments);

/// What replica `index` gets of a mapped leaf.
[[nodiscard]] Tensor slice(const Tensor& leaf, std::int64_t axis, std::int64_t index);

/// The leaves of all replicas, one list a replica, combined along `axis`, or those of the axis'
/// first replica for std::nullopt.
[[nodiscard]] std::vector<Tensor> combine(const PmapOptions& options,
                                          const std::vector<std::vector<Tensor>>& replicas,
                                          std::optional<std::int64_t> axis);

/// In a map that spans processes: replaces the leaves by those of the axis' first replica.
void take_first_replicas(const TeamPlace& place, std::vector<Tensor>& leaves);

template <typename T>
inline constexpr bool is_tuple = tree_detail::is_tuple<T>;

// Trees by value, everything else as it is.
template <typename A>
std::conditional_t<Tree<A>, A, const A&> argument_of_replica(
    const A& argument, const std::optional<std::int64_t>& axis, std::int64_t index) {
  if constexpr (Tree<A>) {
    if (!axis) return argument;
    return tree_map([&](const Tensor& leaf) { return slice(leaf, *axis, index); }, argument);
  } else {
    return argument;
  }
}

template <typename T>
T combine_tree(const PmapOptions& options, const std::vector<const T*>& results,
               std::optional<std::int64_t> axis) {
  std::vector<std::vector<Tensor>> leaves;
  for (const T* result : results) {
    tree_detail::check_same_structure(*results[0], *result, "the result");
    leaves.push_back(tree_leaves(*result));
  }
  return tree_unflatten(*results[0], combine(options, leaves, axis));
}

// One result a replica becomes one of the caller's: as a whole, or a tuple element by element.
template <typename R>
R combine_results(const PmapOptions& options, const std::vector<std::optional<R>>& results) {
  if constexpr (is_tuple<R>) {
    return [&]<std::size_t... I>(std::index_sequence<I...>) {
      const auto element = [&]<std::size_t J>(std::integral_constant<std::size_t, J>) {
        std::vector<const std::tuple_element_t<J, R>*> parts;
        for (const auto& result : results) parts.push_back(&std::get<J>(*result));
        return combine_tree(options, parts, options.out_axes.of(J, sizeof...(I)));
      };
      return R{element(std::integral_constant<std::size_t, I>())...};
    }
    (std::make_index_sequence<std::tuple_size_v<R>>());
  } else {
    std::vector<const R*> whole;
    for (const auto& result : results) whole.push_back(&*result);
    return combine_tree(options, whole, options.out_axes.of(0, 1));
  }
}

// Replaces what out_axes takes from the first replica, in every process alike.
template <typename R>
void share_first(const PmapOptions& options, const TeamPlace& place, R& result) {
  const auto share = [&](auto& tree, std::optional<std::int64_t> axis) {
    if (axis) return;
    auto leaves = tree_leaves(tree);
    take_first_replicas(place, leaves);
    tree = tree_unflatten(tree, leaves);
  };
  if constexpr (is_tuple<R>) {
    [&]<std::size_t... I>(std::index_sequence<I...>) {
      (share(std::get<I>(result), options.out_axes.of(I, sizeof...(I))), ...);
    }
    (std::make_index_sequence<std::tuple_size_v<R>>());
  } else {
    share(result, options.out_axes.of(0, 1));
  }
}

}  // namespace pmap_detail

/// A function that runs `f` once a replica, each in a thread of its own, with the axis bound, and
/// combines what they return. As jax.pmap.
///
///   auto step = pmap(f, {.axis_name = "batch", .in_axes = {std::nullopt, 0}});
///   auto result = step(parameters, batch);
///
/// Arguments that are trees are cut along their entry of in_axes, which is removed: replica i gets
/// slice i. All mapped leaves are equally long there: that is the number of replicas. An argument
/// that is no tree (a number, a string, a config) is static: every replica gets it by reference.
/// Arguments are shared with the caller, not copied: `f` must not change them in place. `f` is
/// called from several threads at once. It returns a tree or nothing; results are stacked as
/// out_axes says.
///
/// In a launched job the axis spans all of its members: each passes the part of its own replicas
/// and gets their results; the number of replicas may differ.
///
/// Derivatives are taken inside the mapped function: a gradient that is taken outside passes
/// through a map without collectives, and is a NameError where it meets one.
///
/// If a replica throws, the others' collectives end and the call throws that first error: one of
/// ours keeps its type and gains the replica's index, another is nested in a ReplicaError.
/// ValueErrors name lengths, ranks and axes that do not fit.
template <typename F>
[[nodiscard]] auto pmap(F f, PmapOptions options = {}) {
  return [f = std::move(f), options = std::move(options)]<typename... Args>(const Args&... args) {
    std::vector<pmap_detail::Argument> arguments;
    [[maybe_unused]] const auto describe = [&](const auto& argument) {
      if constexpr (Tree<decltype(argument)>) {
        arguments.push_back({std::nullopt, true, tree_leaves(argument)});
      } else {
        arguments.push_back({std::nullopt, false, {}});
      }
    };
    (describe(args), ...);
    const std::int64_t replicas = pmap_detail::plan(options, arguments);

    const auto call = [&](const TeamPlace& place) {
      return [&]<std::size_t... I>(std::index_sequence<I...>) {
        return std::invoke(
            f, pmap_detail::argument_of_replica(args, arguments[I].axis, place.local)...);
      }
      (std::index_sequence_for<Args...>());
    };
    using Result = std::remove_cvref_t<decltype(call(std::declval<TeamPlace>()))>;
    const TeamOptions team{options.axis_name, replicas, options.threads_per_replica,
                           options.timeout};
    if constexpr (std::is_void_v<Result>) {
      run_team(team, call);
    } else {
      static_assert(Tree<Result>, "a mapped function returns a tree of tensors or nothing");
      std::vector<std::optional<Result>> results(static_cast<std::size_t>(replicas));
      run_team(team, [&](const TeamPlace& place) {
        auto& result = results[static_cast<std::size_t>(place.local)];
        result.emplace(call(place));
        if (place.spans_processes) pmap_detail::share_first(options, place, *result);
      });
      return pmap_detail::combine_results<Result>(options, results);
    }
  };
}

}  // namespace lockstep
