#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <optional>
#include <string>
#include <tuple>
#include <type_traits>
#include <utility>
#include <vector>

#include "framework/axes/environment.h"
#include "framework/base/errors.h"
#include "framework/base/text.h"
#include "framework/maps/run_map.h"
#include "framework/tree/prefix_tree.h"
#include "framework/tree/tree.h"

namespace lockstep {

/// The dimension along which an argument is cut, one slice a replica; std::nullopt gives every
/// replica all of it. One entry serves all arguments (static ones stay whole), or a list has one
/// for each, which may have entries for parts of a tree (PrefixTree). Left out, it is dimension 0.
using InAxes = PrefixTree<std::optional<std::int64_t>>;

/// The dimension along which replicas' results are stacked: one for all of them, or one for each
/// element of a returned tuple or part of another tree; std::nullopt gives replica 0's alone.
using OutAxes = PrefixTree<std::optional<std::int64_t>>;

// The common parts of pmap, vmap and shard_map.
namespace map_detail {

/// Returns the axis of a map with this axis_name. A map without a name gets kDefaultAxisName or, if
/// an outer map has that, an axis that no collective can name.
[[nodiscard]] NamedAxis named_axis(const std::optional<std::string>& name, std::int64_t size,
                                   bool lanes);

/// A leaf of an argument, its entry in the prefix, and its name in messages.
template <typename Entry>
struct ArgumentLeaf {
  Tensor leaf;
  Entry entry;
  std::string name;
};

/// Throws ValueError unless the list `name` has `count` entries without keys: one a `what`.
template <typename Entry>
void check_count(const PrefixTree<Entry>& list, const char* name, std::size_t count,
                 const char* what) {
  const std::size_t entries = list.parts().size();
  const bool named = !list.keys().empty();
  if (entries == count && !named) return;
  throw ValueError(str(name, " has ",
                       counted(static_cast<std::int64_t>(entries), named ? "named entry" : "entry",
                               named ? "named entries" : "entries"),
                       " for ", counted(static_cast<std::int64_t>(count), what)));
}

/// Returns the entry of each leaf of a tree: `own` has one a leaf, `prefix` may have one for all.
template <typename Entry, typename T>
std::vector<Entry> entries_of(const PrefixTree<Entry>& prefix, const PrefixTree<Entry>& own,
                              const T& tree, const std::string& where) {
  if (!prefix.is_list()) {
    return std::vector<Entry>(tree_detail::leaves_of(tree).size(), prefix.entry());
  }
  std::vector<Entry> entries;
  tree_detail::for_each_entry(own, tree, where,
                              [&](const Entry& entry) { entries.push_back(entry); });
  return entries;
}

/// Returns the arguments' leaves. `prefix`, in messages `name`, has one entry for all or for each.
template <typename Entry, typename... Args>
std::vector<ArgumentLeaf<Entry>> describe(const PrefixTree<Entry>& prefix, const char* name,
                                          const Args&... args) {
  if (prefix.is_list()) check_count(prefix, name, sizeof...(args), "argument");
  std::vector<ArgumentLeaf<Entry>> described;
  [[maybe_unused]] std::size_t index = 0;
  [[maybe_unused]] const auto add = [&](const auto& argument) {
    const auto entries = entries_of(prefix, prefix.is_list() ? prefix.parts()[index] : prefix,
                                    argument, str(name, ": argument ", index));
    const auto paths = tree_detail::paths_of(argument);
    for (std::size_t l = 0; const Tensor& leaf : tree_detail::leaves_of(argument)) {
      const std::string leaf_name = tree_detail::leaf_name(paths, l);
      described.push_back({leaf, entries[l], str(leaf_name, " of argument ", index)});
      ++l;
    }
    ++index;
  };
  (add(args), ...);
  return described;
}

/// Returns the entry of result `element` of `elements`. Messages call the prefix `name`.
template <typename Entry>
const PrefixTree<Entry>& entry_of_result(const PrefixTree<Entry>& prefix, const char* name,
                                         std::size_t element, std::size_t elements) {
  const bool is_entry = !prefix.is_list() && !prefix.is_left_out();
  // A list may have entries for the parts of a result that is no tuple.
  const bool is_of_parts = elements == 1 && (prefix.parts().size() > 1 || !prefix.keys().empty());
  if (is_entry || is_of_parts) return prefix;
  check_count(prefix, name, elements, "result");
  return prefix.parts()[element];
}

/// Throws ValueError, starting with `what`, if a leaf is undefined, or complex with a gradient.
void check_leaf(const Tensor& leaf, const std::string& what);

/// Returns shape and dtype: "[2, 3] Float".
[[nodiscard]] std::string form_of(const Tensor& leaf);

/// Throws ValueError, starting with `what`, unless replica `r`'s leaf has the form of the first's.
void check_same_form(const Tensor& first, const Tensor& leaf, const std::string& what,
                     std::size_t r);

/// Checks a pmap's or vmap's leaves, cuts them as entries say, and sets the number of replicas.
[[nodiscard]] std::vector<maps::MapInput> cut(
    maps::MapCall& map_call,
    const std::vector<ArgumentLeaf<std::optional<std::int64_t>>>& arguments);

/// One leaf of an element of the result, as each of this process' replicas returned it.
struct ResultLeaf {
  Leaves of_replicas;
  std::size_t element;
  std::size_t index;   ///< of the leaf in the element
  std::int64_t first;  ///< the index along the axis of this process' first replica
};

/// Returns the leaf of all replicas, stacked along `axis`; for std::nullopt the first replica's.
[[nodiscard]] Tensor combine(const ResultLeaf& result, const std::optional<std::int64_t>& axis);

/// Makes leaves whose axis is std::nullopt the first replica's, in a map that spans processes.
void take_first_replicas(const maps::MapCall& map_call, Leaves& leaves,
                         const std::vector<std::optional<std::int64_t>>& axes);

/// A message by which replicas check that they have the same.
struct Comparison {
  std::array<std::uint64_t, 3> digests{};
  std::array<char, 248> text{};  ///< the beginning that fits, and a zero

  explicit Comparison(std::array<std::uint64_t, 3> all_digests, const std::string& whole = "");
};

/// Returns `own` of every replica along `axes` (some of the map's). Messages call this `step`.
[[nodiscard]] std::vector<Comparison> compared(const maps::MapCall& map_call, const AxisNames& axes,
                                               const std::string& step, const Comparison& own);

/// Throws ValueError on every replica of the map unless all have the same `texts` of static values.
void check_same_values(const maps::MapCall& map_call, const std::vector<std::string>& texts);

/// Runs `body`. Its ValueErrors gain the map and the line where the map was made.
template <typename Body>
decltype(auto) with_title(const maps::MapCall& map_call, const Body& body) {
  try {
    return body();
  } catch (const ValueError& error) {
    throw ValueError(AxisCall{map_call.map, maps::names_of(map_call), map_call.where}.text() +
                     ": " + error.what());
  }
}

/// Calls visit(element, index, count) for each element of a tuple, or for the whole.
template <typename R, typename Visit>
void for_each_result(R& result, const Visit& visit) {
  if constexpr (tree_detail::is_tuple<std::remove_const_t<R>>) {
    [[maybe_unused]] std::size_t index = 0;
    std::apply([&](auto&... elements) { (visit(elements, index++, sizeof...(elements)), ...); },
               result);
  } else {
    visit(result, std::size_t{0}, std::size_t{1});
  }
}

/// Returns a replica's argument: a tree of `leaves` from `next` on or, if static, the value itself.
template <typename A>
decltype(auto) of_replica(const A& argument, const Leaves& leaves, std::size_t& next) {
  if constexpr (Tree<A>) {
    return tree_detail::take_tree(argument, leaves, next);
  } else if constexpr (tree_detail::is_a<A, StaticArgument>) {
    return std::as_const(argument.value);
  } else {
    return (argument);
  }
}

template <typename A>
using OfReplica = std::remove_cvref_t<decltype(of_replica(
    std::declval<const A&>(), std::declval<const Leaves&>(), std::declval<std::size_t&>()))>;

/// Calls `f` with the arguments. Trees are built from `leaves`, all arguments' leaves end to end.
template <typename F, typename... Args>
decltype(auto) call_with_leaves(const F& f, const Leaves& leaves, const Args&... args) {
  [[maybe_unused]] std::size_t next = 0;
  // A braced list is evaluated from left to right.
  std::tuple<decltype(of_replica(args, leaves, next))...> own{of_replica(args, leaves, next)...};
  return std::apply([&](auto&... arguments) { return std::invoke(f, std::as_const(arguments)...); },
                    own);
}

/// Returns true if `f` can be mapped over the arguments; else a single static_assert says why not.
template <typename F, typename... Args>
consteval bool check_call() {
  constexpr bool known = (tree_detail::is_known<Args> && ...);
  static_assert(known, LOCKSTEP_DETAIL_UNKNOWN);
  if constexpr (known) {
    constexpr bool fits = tree_detail::Takes<F, const OfReplica<Args>&...>;
    constexpr bool changes = !fits && tree_detail::Takes<F, OfReplica<Args>&...>;
    static_assert(!changes,
                  "lockstep: a mapped function takes its arguments by value or const reference: a "
                  "Tensor& could change what replicas share");
    static_assert(fits || changes,
                  "lockstep: the mapped function cannot be called with these arguments: there are "
                  "too few or too many of them, they are of other types, or it is mutable");
    if constexpr (fits) {
      using Result = std::invoke_result_t<const F&, const OfReplica<Args>&...>;
      constexpr bool is_tree = std::is_void_v<Result> || Tree<Result>;
      static_assert(is_tree,
                    "lockstep: a mapped function returns a tree of tensors or nothing: a struct "
                    "needs LOCKSTEP_TREE(Type, members...), a number at::scalar_tensor(x)");
      return is_tree;
    }
  }
  return false;
}

/// Runs `f` on all replicas. `combined` makes a leaf of the result from the replicas' leaves
/// (ResultLeaf) and its entry in `out`, in messages `name`. In a replica's thread, finish(place,
/// leaves, entries as a function, element's index, count) may change an element's leaves.
template <typename Entry, typename F, typename Finish, typename Combine, typename... Args>
auto run(const maps::MapCall& map_call, const std::vector<maps::MapInput>& inputs,
         const PrefixTree<Entry>& out, const char* name, const F& f, const Finish& finish,
         const Combine& combined, const Args&... args) {
  using Result = std::remove_cvref_t<decltype(call_with_leaves(f, {}, args...))>;
  if constexpr (std::is_void_v<Result>) {
    (void)maps::run_map(map_call, inputs, [&](const maps::ReplicaThread&, const Leaves& leaves) {
      call_with_leaves(f, leaves, args...);
      return Leaves();
    });
  } else {
    const auto entries_for = [&](const auto& element, std::size_t index, std::size_t count) {
      return with_title(map_call, [&] {
        return entries_of(out, entry_of_result(out, name, index, count), element,
                          str(name, ": result ", index));
      });
    };
    std::vector<std::optional<Result>> results(static_cast<std::size_t>(map_call.replicas));
    std::int64_t first = 0;
    const auto leaves_of_all = maps::run_map(
        map_call, inputs, [&](const maps::ReplicaThread& place, const Leaves& leaves) {
          if (place.local == 0) first = place.first;
          auto& result = results[static_cast<std::size_t>(place.local)];
          result.emplace(call_with_leaves(f, leaves, args...));
          if constexpr (tree_detail::has_values<Result>()) {
            check_same_values(map_call, tree_detail::texts_of_values(*result));
          }
          Leaves all;
          for_each_result(*result, [&](const auto& element, std::size_t index, std::size_t count) {
            Leaves own = tree_detail::leaves_of(element);
            finish(
                place, own, [&] { return entries_for(element, index, count); }, index, count);
            all.insert(all.end(), own.begin(), own.end());
          });
          return all;
        });
    for (std::size_t r = 1; r < results.size(); ++r) {
      try {
        tree_detail::check_same_structure(*results[0], *results[r], "the result");
      } catch (const ValueError& error) {
        error.rethrow_with(str(maps::text_of(map_call), ": replicas ", first, " and ",
                               first + static_cast<std::int64_t>(r), ": "));
      }
    }
    Result whole = *results[0];
    std::size_t next = 0;
    for_each_result(whole, [&](auto& element, std::size_t index, std::size_t count) {
      const auto entries = entries_for(element, index, count);
      std::size_t l = 0;
      tree_detail::for_each_leaf(element, [&](Tensor& leaf) {
        ResultLeaf result{{}, index, l, first};
        for (const auto& leaves : leaves_of_all) result.of_replicas.push_back(leaves[next + l]);
        leaf = with_title(map_call, [&] { return combined(result, entries[l]); });
        ++l;
      });
      next += l;
    });
    return whole;
  }
}

/// Makes the function that pmap or vmap returns. `map_call` has the differences between the two.
template <typename F, typename Options>
auto axis_map(const maps::MapCall& map_call, F f, Options options) {
  return [map_call, f = std::move(f),
          options = std::move(options)]<typename... Args>(const Args&... args) {
    if constexpr (check_call<F, Args...>()) {
      maps::MapCall call = map_call;
      call.axes = {named_axis(options.axis_name, options.axis_size, call.lanes)};
      call.timeout = options.timeout;
      const auto inputs = with_title(call, [&] {
        auto arguments = describe(options.in_axes, "in_axes", args...);
        if (options.in_axes.is_left_out()) {
          for (auto& argument : arguments) argument.entry = 0;
        }
        return cut(call, arguments);
      });
      const auto share_first = [&](const maps::ReplicaThread& place, Leaves& leaves,
                                   const auto& axes, std::size_t, std::size_t) {
        if (place.spans_members) take_first_replicas(call, leaves, axes());
      };
      return run(call, inputs, options.out_axes, "out_axes", f, share_first, combine, args...);
    } else {
      return Tensor();  // else the compiler would add errors about the call's result
    }
  };
}

}  // namespace map_detail
}  // namespace lockstep
