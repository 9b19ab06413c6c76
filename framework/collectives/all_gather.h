#pragma once

#include <cstdint>
#include <source_location>

#include "framework/axes/environment.h"
#include "framework/collectives/operand.h"
#include "framework/tree/tree.h"

namespace lockstep {

struct AllGatherOptions {
  /// The dimension along which the result has the replicas' values; negative counts from its end.
  std::int64_t axis = 0;
  /// False stacks values along a new dimension at `axis`, true concatenates along the existing one.
  bool tiled = false;
  AxisIndexGroups axis_index_groups = {};  ///< of one size: each works alone
};

struct PsumScatterOptions {
  /// The dimension that is cut into one piece a replica; negative counts from the end.
  std::int64_t scatter_dimension = 0;
  /// False: the dimension must be as long as the number of replicas, and is removed. True: the
  /// number of replicas must divide its length, and the result keeps one piece of it.
  bool tiled = false;
  AxisIndexGroups axis_index_groups = {};  ///< of one size: each works alone
};

namespace collectives {
Leaves all_gather_leaves(const AxisCall& call, const Leaves& leaves, std::int64_t axis, bool tiled,
                         const AxisIndexGroups& groups);
Leaves psum_scatter_leaves(const AxisCall& call, const Leaves& leaves, std::int64_t dimension,
                           bool tiled, const AxisIndexGroups& groups);
}  // namespace collectives

/// Returns the values of all replicas of the axis (or of this replica's group), leaf by leaf, the
/// same on each. With N replicas a leaf of shape (a, b) gives (N, a, b), or tiled (N a, b), for
/// axis 0. As jax.lax.all_gather.
///
///   y[r]  = [x[0] x[1] … x[N-1]]
///   dx[r] = dy[0][r] + dy[1][r] + … + dy[N-1][r]
///
///   replica  x      → y                dy             → dx
///   0        [1 2]    [[1 2] [3 4]]    [[1 0] [0 1]]    [1 1]
///   1        [3 4]    [[1 2] [3 4]]    [[0 1] [5 0]]    [5 1]
///
/// Derivative: psum_scatter of the gradients. Trees and errors: as psum; a ValueError too for an
/// axis out of range.
template <Tree T>
[[nodiscard]] T all_gather(const T& x, const AxisNames& axis_name,
                           const AllGatherOptions& options = {},
                           std::source_location where = std::source_location::current()) {
  return collectives::on_leaves(x, [&](const Leaves& leaves) {
    return collectives::all_gather_leaves({"all_gather", axis_name, where}, leaves, options.axis,
                                          options.tiled, options.axis_index_groups);
  });
}

/// Returns this replica's piece of psum(x): with N replicas, piece i of the scatter dimension goes
/// to replica i of the axis (or of this replica's group). Its bits are those of psum(x), so that
/// all_gather(psum_scatter(x)) is psum(x). Booleans are counted in int64. As jax.lax.psum_scatter.
///
///   y[r]  = x[0][r] + x[1][r] + … + x[N-1][r]
///   dx[r] = [dy[0] dy[1] … dy[N-1]]
///
///   replica  x              → y          dy     → dx
///   0        [[1 2] [3 4]]    [6 8]      [1 0]    [[1 0] [0 5]]
///   1        [[5 6] [7 8]]    [10 12]    [0 5]    [[1 0] [0 5]]
///
/// Derivative: all_gather of the gradients. Trees and errors: as psum; ValueErrors too if the
/// dimension is out of range or its length does not suit the number of replicas.
template <Tree T>
[[nodiscard]] T psum_scatter(const T& x, const AxisNames& axis_name,
                             const PsumScatterOptions& options = {},
                             std::source_location where = std::source_location::current()) {
  return collectives::on_leaves(x, [&](const Leaves& leaves) {
    return collectives::psum_scatter_leaves({"psum_scatter", axis_name, where}, leaves,
                                            options.scatter_dimension, options.tiled,
                                            options.axis_index_groups);
  });
}

LOCKSTEP_NEEDS_AXIS(all_gather)
LOCKSTEP_NEEDS_AXIS(psum_scatter)

}  // namespace lockstep
