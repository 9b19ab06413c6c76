#pragma once

#include "framework/axes/environment.h"
#include "framework/collectives/message.h"
#include "framework/tree/variance.h"

namespace lockstep::collectives {

// How collectives are tracked in a shard_map with check_vma: over which axes each result varies,
// and which operands are made to vary first. Other operations: tracked_operations.h.

/// Over which of the map's axes a collective's result varies.
enum class ResultAxes {
  as_operand,  ///< over the operand's axes, which are made to include the call's
  dropped,     ///< over the operand's axes without the call's
  as_all,      ///< over the axes of all operands together
  gained,      ///< over the operand's axes and the call's
};

/// The leaves, made to vary over `axes` as well. A leaf that requires a gradient gets a pvary in
/// autograd's graph and keeps its memory; another leaf that does not vary over them yet is copied.
[[nodiscard]] Leaves varying_over(tree::AxisSet axes, const Leaves& leaves);

/// The leaves of a call in a replica that is tracked, made to vary as `result` says. ValueError if
/// some of the call's axes are tracked and others are not, or, for ResultAxes::gained, a leaf
/// varies over them.
[[nodiscard]] Leaves tracked_operands(const AxisCall& call, const Leaves& leaves,
                                      ResultAxes result);
/// The results of such a call, marked with the axes over which they vary.
[[nodiscard]] Leaves tracked_results(const AxisCall& call, const Leaves& operands,
                                     const Leaves& results, ResultAxes result);

/// Whether results of psum and the like are the same along the call's axes: true without groups, in
/// a replica that is tracked over these axes.
[[nodiscard]] bool gives_invariant(const AxisNames& axes, const AxisIndexGroups& groups);

/// ValueError if a leaf varies over some of the call's axes only: psum would multiply along others.
void check_one_kind(const AxisCall& call, const Leaves& leaves);

/// ValueError in a tracked replica, for a call that works on memory or returns numbers: these
/// cannot be tracked.
void refuse_if_tracked(const AxisCall& call, const char* instead);

}  // namespace lockstep::collectives
