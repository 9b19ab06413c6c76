#pragma once

#include <cstdint>
#include <source_location>

#include "framework/axes/environment.h"
#include "framework/collectives/operand.h"
#include "framework/tree/tree.h"

namespace lockstep {

struct AllToAllOptions {
  /// False: split_axis, as long as the number of replicas, is removed, and a new dimension inserted
  /// at concat_axis. True: the number of replicas divides the length of split_axis. Each piece
  /// keeps its part of it, and pieces are concatenated along concat_axis.
  bool tiled = false;
  AxisIndexGroups axis_index_groups = {};  ///< of one size: each works alone
};

struct PswapaxesOptions {
  AxisIndexGroups axis_index_groups = {};  ///< of one size: each works alone
};

namespace collectives {
/// The call is an "all_to_all", or a "pswapaxes", whose two axes are the same.
Leaves all_to_all_leaves(const AxisCall& call, const Leaves& leaves, std::int64_t split_axis,
                         std::int64_t concat_axis, const AllToAllOptions& options);
}  // namespace collectives

/// Cuts each leaf along split_axis into one piece a replica, sends piece r to replica r of the axis
/// (or of this replica's group), and puts the piece from replica r at place r of concat_axis. With
/// N replicas a leaf of shape (N, a, b), split_axis 0 and concat_axis 1, gives (a, N, b), as
/// concat_axis counts in the result; tiled, (N a, b) gives (a, N b). Dtypes stay; negative axes
/// count from the end. As jax.lax.all_to_all.
///
///   y[r][s]  = x[s][r]     with split_axis 0 and concat_axis 0
///   dx[r][s] = dy[s][r]
///
///   replica  x              → y                dy             → dx
///   0        [[1 2] [3 4]]    [[1 2] [5 6]]    [[1 0] [2 0]]    [[1 0] [3 0]]
///   1        [[5 6] [7 8]]    [[3 4] [7 8]]    [[3 0] [4 0]]    [[2 0] [4 0]]
///
/// Derivative: all_to_all of the gradients with split_axis and concat_axis exchanged. Trees and
/// errors: as psum; ValueErrors too if an axis is out of range or split_axis' length does not suit.
template <Tree T>
[[nodiscard]] T all_to_all(const T& x, const AxisNames& axis_name, std::int64_t split_axis,
                           std::int64_t concat_axis, const AllToAllOptions& options = {},
                           std::source_location where = std::source_location::current()) {
  return collectives::on_leaves(x, [&](const Leaves& leaves) {
    return collectives::all_to_all_leaves({"all_to_all", axis_name, where}, leaves, split_axis,
                                          concat_axis, options);
  });
}

/// Exchanges the axis of the replicas with the dimension `axis`, which is as long as there are
/// replicas: slice r of replica s is slice s of the result on replica r. all_to_all with both axes
/// `axis`; shapes stay. As jax.lax.pswapaxes.
///
///   y[r][s]  = x[s][r]     with axis 0
///   dx[r][s] = dy[s][r]
///
///   replica  x      → y        dy     → dx
///   0        [1 2]    [1 3]    [5 6]    [5 7]
///   1        [3 4]    [2 4]    [7 8]    [6 8]
///
/// Derivative: pswapaxes of the gradients. Errors: as all_to_all.
template <Tree T>
[[nodiscard]] T pswapaxes(const T& x, const AxisNames& axis_name, std::int64_t axis,
                          const PswapaxesOptions& options = {},
                          std::source_location where = std::source_location::current()) {
  return collectives::on_leaves(x, [&](const Leaves& leaves) {
    return collectives::all_to_all_leaves({"pswapaxes", axis_name, where}, leaves, axis, axis,
                                          {.axis_index_groups = options.axis_index_groups});
  });
}

LOCKSTEP_NEEDS_AXIS(all_to_all)
LOCKSTEP_NEEDS_AXIS(pswapaxes)

}  // namespace lockstep
