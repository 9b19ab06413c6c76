#pragma once

#include <cstdint>
#include <source_location>

#include "framework/axes/axis_names.h"
#include "framework/axes/environment.h"
#include "framework/tree/tree.h"

namespace lockstep {

struct PsumScatterOptions {
  /// The dimension that is cut into one piece a replica; negative counts from the end.
  std::int64_t scatter_dimension = 0;
  /// False: the dimension must be as long as the number of replicas, and is removed. True: the
  /// number of replicas must divide its length, and the result keeps one piece of it.
  bool tiled = false;
  /// Work within each of these groups, of one size, in the order in which they are written.
  AxisIndexGroups axis_index_groups = {};
};

namespace collectives_detail {
Leaves psum_scatter_leaves(const AxisCall& call, const Leaves& leaves,
                           const PsumScatterOptions& options);
}  // namespace collectives_detail

/// This replica's piece of psum(x): with N replicas, piece i of the scatter dimension goes to
/// replica i of the axis (or of this replica's group). Bitwise that piece of psum(x), so that
/// all_gather(psum_scatter(x)) is psum(x). Booleans are counted in int64. All replicas call it with
/// trees of the same shapes; leaves of one dtype travel in one message. As jax.lax.psum_scatter.
///
/// Derivative: all_gather of the gradients. Throws as psum; ValueErrors too if the dimension is out
/// of range or its length does not suit the number of replicas.
template <Tree T>
[[nodiscard]] T psum_scatter(const T& x, const AxisNames& axis_name,
                             const PsumScatterOptions& options = {},
                             std::source_location where = std::source_location::current()) {
  return tree_unflatten(x, collectives_detail::psum_scatter_leaves(
                               {"psum_scatter", axis_name, where}, tree_leaves(x), options));
}

LOCKSTEP_NEEDS_AXIS(psum_scatter)

}  // namespace lockstep
