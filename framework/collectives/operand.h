#pragma once

#include <functional>
#include <string>
#include <type_traits>
#include <vector>

#include "framework/base/scoped_value.h"
#include "framework/tree/tree.h"

namespace lockstep::collectives {

/// The tree whose leaves a call of this thread works on, for messages and for comparisons.
struct Operand {
  /// Returns tree_detail::paths_of() the tree.
  std::function<std::vector<std::string>()> paths;
  /// True if trees of its type may have other leaves on other replicas: maps, vectors, optionals.
  bool may_differ;
};
/// nullptr where the leaves are of no tree: for a lone tensor, and in a backward.
inline constinit thread_local const Operand* operand_here = nullptr;

template <typename T>
using MayDiffer = std::bool_constant<tree_detail::Map<T> || tree_detail::is_a<T, std::optional> ||
                                     tree_detail::is_a<T, std::vector>>;

/// Returns a tree built like `x`, with the leaves that collective(leaves) makes of its leaves.
template <Tree T, typename Collective>
[[nodiscard]] T on_leaves(const T& x, const Collective& collective) {
  if constexpr (std::is_same_v<T, Tensor>) {
    return tree_unflatten(x, collective(tree_leaves(x)));
  } else {
    const auto paths = [&x] { return tree_detail::paths_of(x); };
    // A list of tensors differs in its length alone, which its leaves show.
    constexpr bool is_list = std::is_same_v<T, Leaves>;
    const Operand operand{paths, !is_list && tree_detail::has_any<MayDiffer, T>()};
    const ScopedValue<const Operand*> here(operand_here, &operand);
    return tree_unflatten(x, collective(tree_leaves(x)));
  }
}

}  // namespace lockstep::collectives
