#pragma once

#include <source_location>

#include "framework/axes/environment.h"
#include "framework/base/element_type.h"
#include "framework/collectives/operand.h"
#include "framework/tree/tree.h"

namespace lockstep {

namespace collectives {
Leaves index_of_extremum(const AxisCall& call, ReduceOp extremum, const Leaves& leaves);
}  // namespace collectives

/// Returns, for each element, the index along the axis (for several names the row-major index) of
/// the replica that holds the largest value: int64 tensors of the leaves' shapes, the same on all
/// replicas. Among equal values the lowest index counts; a NaN counts as the largest. As
/// jax.lax.pargmax, which does not say what NaNs do.
///
///   y[r] = the lowest s for which x[s] = max(x[0], x[1], …, x[N-1])
///
///   replica  x      → y
///   0        [1 9]    [1 0]
///   1        [5 2]    [1 0]
///   2        [5 4]    [1 0]
///
/// No derivative: the result requires no gradient. Trees and errors: as psum.
template <Tree T>
[[nodiscard]] T pargmax(const T& x, const AxisNames& axis_name,
                        std::source_location where = std::source_location::current()) {
  return collectives::on_leaves(x, [&](const Leaves& leaves) {
    return collectives::index_of_extremum({"pargmax", axis_name, where}, ReduceOp::max, leaves);
  });
}

/// The index of the replica with the smallest value; a NaN counts as the smallest. See pargmax.
///
///   y[r] = the lowest s for which x[s] = min(x[0], x[1], …, x[N-1])
///
///   replica  x      → y
///   0        [1 9]    [0 1]
///   1        [5 2]    [0 1]
///   2        [5 4]    [0 1]
template <Tree T>
[[nodiscard]] T pargmin(const T& x, const AxisNames& axis_name,
                        std::source_location where = std::source_location::current()) {
  return collectives::on_leaves(x, [&](const Leaves& leaves) {
    return collectives::index_of_extremum({"pargmin", axis_name, where}, ReduceOp::min, leaves);
  });
}

LOCKSTEP_NEEDS_AXIS(pargmax)
LOCKSTEP_NEEDS_AXIS(pargmin)

}  // namespace lockstep
