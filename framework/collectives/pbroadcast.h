#pragma once

#include <cstdint>
#include <source_location>

#include "framework/axes/environment.h"
#include "framework/collectives/operand.h"
#include "framework/tree/tree.h"

namespace lockstep {

namespace collectives {
Leaves pbroadcast_leaves(const AxisCall& call, const Leaves& leaves, std::int64_t source);
}  // namespace collectives

/// Returns the value of replica `source` of the axis, on every replica. All give the same source;
/// the others' values do not matter. As jax.lax.pbroadcast.
///
///   y[r]       = x[source]                          here with source 1
///   dx[source] = dy[0] + dy[1] + … + dy[N-1]        and 0 on the others
///
///   replica  x      → y        dy     → dx
///   0        [1 2]    [3 4]    [1 0]    [0 0]
///   1        [3 4]    [3 4]    [0 1]    [3 1]
///   2        [5 6]    [3 4]    [2 0]    [0 0]
///
/// Derivative: the source gets the psum of the gradients, the others get zeros. Trees and errors:
/// as psum; a ValueError too if `source` is not on the axis.
template <Tree T>
[[nodiscard]] T pbroadcast(const T& x, const AxisNames& axis_name, std::int64_t source,
                           std::source_location where = std::source_location::current()) {
  return collectives::on_leaves(x, [&](const Leaves& leaves) {
    return collectives::pbroadcast_leaves({"pbroadcast", axis_name, where}, leaves, source);
  });
}

LOCKSTEP_NEEDS_AXIS(pbroadcast)

}  // namespace lockstep
