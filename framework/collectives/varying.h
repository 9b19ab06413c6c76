#pragma once

#include "framework/axes/environment.h"
#include "framework/collectives/message.h"
#include "framework/tree/variance.h"

namespace lockstep::collectives {

// How a shard_map with check_vma tracks collectives. Other operations: tracked_operations.h.

/// The map's axes over which a collective's result varies.
enum class ResultAxes {
  as_operand,  ///< over the operand's axes, which are made to include the call's
  dropped,     ///< over the operand's axes without the call's
  as_all,      ///< over the axes of all operands together
  gained,      ///< over the operand's axes and the call's
};

/// Returns the leaves, made to vary over `axes` as well. A leaf that requires a gradient gets a
/// pvary in autograd's graph and keeps its memory; any other that does not vary so yet is copied.
[[nodiscard]] Leaves varying_over(tree::AxisSet axes, const Leaves& leaves);

/// Returns a tracked replica's leaves, made to vary as `result` says. Throws ValueError if only
/// some of the call's axes are tracked or, for ResultAxes::gained, a leaf varies over them.
[[nodiscard]] Leaves tracked_operands(const AxisCall& call, const Leaves& leaves,
                                      ResultAxes result);
/// Returns the results of such a call, marked with the axes over which they vary.
[[nodiscard]] Leaves tracked_results(const AxisCall& call, const Leaves& operands,
                                     const Leaves& results, ResultAxes result);

/// True if psum's results are the same along these axes: if tracked over them, without groups.
[[nodiscard]] bool gives_invariant(const AxisNames& axes, const AxisIndexGroups& groups);

/// Throws ValueError if a leaf varies over only a part of the call's axes: psum would multiply it.
void check_one_kind(const AxisCall& call, const Leaves& leaves);

/// Throws ValueError in a tracked replica: a call on memory, or for a number, can't be tracked.
void refuse_if_tracked(const AxisCall& call, const char* instead);

}  // namespace lockstep::collectives
