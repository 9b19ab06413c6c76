#pragma once

#include <chrono>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <initializer_list>
#include <optional>
#include <source_location>
#include <string>
#include <tuple>
#include <type_traits>
#include <utility>
#include <vector>

#include "framework/replicas/run_map.h"
#include "framework/tree/tree.h"

namespace lockstep {

/// One entry an argument: the dimension that is cut into replicas, or std::nullopt to give every
/// replica the whole argument. Left out, every tree is cut along dimension 0.
using InAxes = std::vector<std::optional<std::int64_t>>;

/// Where results of replicas are stacked: one dimension for all of them, or one for each element of
/// a returned tuple; std::nullopt gives replica 0's alone.
class OutAxes {
 public:
  OutAxes(std::int64_t axis) : axes_{axis}, for_all_(true) {}       // NOLINT
  OutAxes(std::nullopt_t) : axes_{std::nullopt}, for_all_(true) {}  // NOLINT
  OutAxes(std::initializer_list<std::optional<std::int64_t>> axes) : axes_(axes) {}

  /// The axis of result `element` of `elements`. Throws ValueError, starting with `map`, if there
  /// is not one for each.
  [[nodiscard]] std::optional<std::int64_t> of(const char* map, std::size_t element,
                                               std::size_t elements) const;

 private:
  std::vector<std::optional<std::int64_t>> axes_;
  bool for_all_ = false;
};

// What pmap, vmap and shard_map share.
namespace map_detail {

/// pmap and vmap as one.
struct AxisMap {
  const char* map;  ///< "pmap"
  std::string axis_name;
  InAxes in_axes;
  OutAxes out_axes;
  std::int64_t axis_size;
  bool lanes;
  std::int64_t threads_per_replica;
  std::chrono::milliseconds timeout;
  std::source_location where;
};

/// An argument as the checks see it.
struct Argument {
  std::optional<std::int64_t> axis;
  bool is_tree;
  std::vector<Tensor> leaves;
};

/// Refuses what no map takes: ValueError, starting with `what`, for an undefined leaf of an
/// argument and for a complex one that requires a gradient.
void check_leaf(const Tensor& leaf, const std::string& what);

/// Fills in what in_axes leaves out and checks it. Returns the number of replicas.
std::int64_t plan(const AxisMap& options, std::vector<Argument>& arguments);

/// The leaves of all arguments, cut as they say.
[[nodiscard]] std::vector<MapInput> cut(const AxisMap& options,
                                        const std::vector<Argument>& arguments,
                                        std::int64_t replicas);

/// What a process' replicas returned for one element of the result.
struct Element {
  std::vector<std::vector<Tensor>> leaves;  ///< by replica
  std::size_t index;
  std::size_t count;
  std::int64_t first;  ///< along the axis, of this process' first replica
};

/// The leaves of all replicas, combined as out_axes says: for std::nullopt those of the axis' first
/// replica.
[[nodiscard]] std::vector<Tensor> combine(const AxisMap& options, const Element& element);

/// In a map that spans processes: replaces the leaves by those of the axis' first replica.
void take_first_replicas(const AxisMap& options, std::vector<Tensor>& leaves);

template <typename T>
inline constexpr bool is_tuple = tree_detail::is_tuple<T>;

/// An argument as the checks see it.
template <typename A>
Argument describe(const A& argument) {
  if constexpr (Tree<A>) {
    return {std::nullopt, true, tree_leaves(argument)};
  } else {
    return {std::nullopt, false, {}};
  }
}

/// Calls visit(element, index, count) for each element of a tuple, or for the whole.
template <typename R, typename Visit>
void for_each_result(R& result, const Visit& visit) {
  if constexpr (is_tuple<std::remove_const_t<R>>) {
    [&]<std::size_t... I>(std::index_sequence<I...>) {
      (visit(std::get<I>(result), I, sizeof...(I)), ...);
    }
    (std::make_index_sequence<std::tuple_size_v<std::remove_const_t<R>>>());
  } else {
    visit(result, std::size_t{0}, std::size_t{1});
  }
}

/// Calls `f` with the arguments, trees replaced by those that the leaves make, all arguments' one
/// behind the other.
template <typename F, typename... Args>
decltype(auto) call_with_leaves(const F& f, const std::vector<Tensor>& leaves,
                                const Args&... args) {
  std::size_t next = 0;
  [[maybe_unused]] const auto of_replica = [&]<typename A>(const A& argument) -> decltype(auto) {
    if constexpr (Tree<A>) {
      const std::size_t count = tree_leaves(argument).size();
      const auto begin = leaves.begin() + static_cast<std::ptrdiff_t>(next);
      next += count;
      return tree_unflatten(argument,
                            std::vector<Tensor>(begin, begin + static_cast<std::ptrdiff_t>(count)));
    } else {
      return (argument);
    }
  };
  // A braced list is evaluated from left to right.
  std::tuple<decltype(of_replica(args))...> own{of_replica(args)...};
  return std::apply([&](auto&... arguments) { return std::invoke(f, std::as_const(arguments)...); },
                    own);
}

/// Runs `f` in a team and gives what `combined(Element)` makes of every element of its result.
/// `finish` may change a replica's leaves of an element in its thread.
template <typename F, typename Finish, typename Combine, typename... Args>
auto run(const TeamOptions& team, const std::vector<MapInput>& inputs, const F& f,
         const Finish& finish, const Combine& combined, const Args&... args) {
  using Result = std::remove_cvref_t<decltype(call_with_leaves(f, {}, args...))>;
  if constexpr (std::is_void_v<Result>) {
    (void)run_map(team, inputs, [&](const TeamPlace&, const std::vector<Tensor>& leaves) {
      call_with_leaves(f, leaves, args...);
      return std::vector<Tensor>();
    });
  } else {
    static_assert(Tree<Result>, "a mapped function returns a tree of tensors or nothing");
    std::vector<std::optional<Result>> results(static_cast<std::size_t>(team.replicas));
    std::int64_t first = 0;
    const auto leaves_of_all =
        run_map(team, inputs, [&](const TeamPlace& place, const std::vector<Tensor>& leaves) {
          if (place.local == 0) first = place.first;
          auto& result = results[static_cast<std::size_t>(place.local)];
          result.emplace(call_with_leaves(f, leaves, args...));
          std::vector<Tensor> all;
          for_each_result(*result, [&](const auto& element, std::size_t index, std::size_t count) {
            auto own = tree_leaves(element);
            finish(place, own, index, count);
            all.insert(all.end(), own.begin(), own.end());
          });
          return all;
        });
    for (std::size_t r = 1; r < results.size(); ++r) {
      try {
        tree_detail::check_same_structure(*results[0], *results[r], "the result");
      } catch (const ValueError& error) {
        error.rethrow_with(str(text_of(team), ": replicas ", first, " and ",
                               first + static_cast<std::int64_t>(r), ": "));
      }
    }
    Result whole = *results[0];
    std::size_t next = 0;
    for_each_result(whole, [&](auto& element, std::size_t index, std::size_t count) {
      const std::size_t size = tree_leaves(element).size();
      Element parts{{}, index, count, first};
      for (const auto& leaves : leaves_of_all) {
        const auto begin = leaves.begin() + static_cast<std::ptrdiff_t>(next);
        parts.leaves.emplace_back(begin, begin + static_cast<std::ptrdiff_t>(size));
      }
      next += size;
      element = tree_unflatten(element, combined(parts));
    });
    return whole;
  }
}

/// pmap and vmap once their options are one.
template <typename F, typename... Args>
auto run_axis_map(const AxisMap& options, const F& f, const Args&... args) {
  std::vector<Argument> arguments{describe(args)...};
  const std::int64_t replicas = plan(options, arguments);
  const TeamOptions team{options.map,   {{options.axis_name, replicas}}, replicas,
                         options.lanes, options.threads_per_replica,     options.timeout,
                         options.where};
  const auto share_first = [&](const TeamPlace& place, std::vector<Tensor>& leaves,
                               std::size_t index, std::size_t count) {
    if (!place.spans_members || options.out_axes.of(options.map, index, count)) return;
    take_first_replicas(options, leaves);
  };
  const auto combined = [&](const Element& parts) { return combine(options, parts); };
  return run(team, cut(options, arguments, replicas), f, share_first, combined, args...);
}

}  // namespace map_detail
}  // namespace lockstep
