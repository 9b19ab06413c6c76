#pragma once

#include <concepts>
#include <cstdint>
#include <ranges>
#include <source_location>
#include <utility>
#include <vector>

#include "framework/axes/environment.h"
#include "framework/collectives/operand.h"
#include "framework/tree/tree.h"

namespace lockstep {

/// Pairs of source and destination, as indices along an axis.
using SourceDestinationPairs = std::vector<std::pair<std::int64_t, std::int64_t>>;

namespace collectives {
Leaves ppermute_leaves(const AxisCall& call, const Leaves& leaves,
                       const SourceDestinationPairs& perm);
Leaves pshuffle_leaves(const AxisCall& call, const Leaves& leaves,
                       const std::vector<std::int64_t>& perm);
}  // namespace collectives

/// Sends values along pairs: each destination in `perm` gets its source's value. A replica that is
/// no destination gets zeros:
///
///   x = ppermute(x, "stage", {{0, 1}, {1, 2}, {2, 3}});  // one stage on; stage 0 gets zeros
///
/// No index is a source twice, nor a destination twice. All replicas give the same `perm`. As
/// jax.lax.ppermute.
///
///   y[destination] = x[source]        of each pair; 0 without one
///   dx[source]     = dy[destination]  of each pair; 0 without one
///
///   replica  x      → y        dy     → dx       along {{0, 1}, {1, 2}}
///   0        [1 2]    [0 0]    [6 7]    [7 8]
///   1        [3 4]    [1 2]    [7 8]    [8 9]
///   2        [5 6]    [3 4]    [8 9]    [0 0]
///
/// Derivative: ppermute of the gradients along the inverse pairs. Trees and errors: as psum;
/// ValueErrors too for indices that are not on the axis or stand twice.
template <Tree T>
[[nodiscard]] T ppermute(const T& x, const AxisNames& axis_name, const SourceDestinationPairs& perm,
                         std::source_location where = std::source_location::current()) {
  return collectives::on_leaves(x, [&](const Leaves& leaves) {
    return collectives::ppermute_leaves({"ppermute", axis_name, where}, leaves, perm);
  });
}

/// The same for pairs of any integers, in any range: a std::vector<std::pair<int, int>>.
template <Tree T, std::ranges::input_range Pairs>
requires std::integral<typename std::ranges::range_value_t<Pairs>::first_type> &&
    std::integral<typename std::ranges::range_value_t<Pairs>::second_type>
[[nodiscard]] T ppermute(const T& x, const AxisNames& axis_name, const Pairs& perm,
                         std::source_location where = std::source_location::current()) {
  SourceDestinationPairs pairs;
  for (const auto& [source, destination] : perm) {
    pairs.emplace_back(static_cast<std::int64_t>(source), static_cast<std::int64_t>(destination));
  }
  return ppermute(x, axis_name, pairs, where);
}

/// Returns, on replica i, the value of replica perm[i]. `perm` is a permutation of all indices of
/// the axis. As jax.lax.pshuffle.
///
///   y[r]        = x[perm[r]]
///   dx[perm[r]] = dy[r]
///
///   replica  x      → y        dy     → dx       by {2, 0, 1}
///   0        [1 2]    [5 6]    [6 7]    [7 8]
///   1        [3 4]    [1 2]    [7 8]    [8 9]
///   2        [5 6]    [3 4]    [8 9]    [6 7]
///
/// Derivative: pshuffle of the gradients by the inverse permutation. Throws as psum; a ValueError
/// too if `perm` is no permutation.
template <Tree T>
[[nodiscard]] T pshuffle(const T& x, const AxisNames& axis_name,
                         const std::vector<std::int64_t>& perm,
                         std::source_location where = std::source_location::current()) {
  return collectives::on_leaves(x, [&](const Leaves& leaves) {
    return collectives::pshuffle_leaves({"pshuffle", axis_name, where}, leaves, perm);
  });
}

LOCKSTEP_NEEDS_AXIS(ppermute)
LOCKSTEP_NEEDS_AXIS(pshuffle)

}  // namespace lockstep
