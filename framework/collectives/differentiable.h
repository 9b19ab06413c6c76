#pragma once

#include <functional>
#include <string>

#include "framework/collectives/message.h"
#include "framework/collectives/varying.h"

namespace lockstep {

/// Computes the gradients of a collective's operands from those of its results. It uses collectives
/// itself, so that higher derivatives work.
using BackwardRule = std::function<Leaves(const Leaves& result_gradients)>;

/// Announces a call without a derivative to `replicas`, as differentiable() does, and runs it. The
/// first of the leaves counts as written.
void announced(const AxisCall& call, ReplicaGroup& replicas, const Leaves& leaves,
               const std::string& detail, const std::function<void()>& run);

/// Announces the call to `replicas`, who compare it with theirs: operation, axes, dtypes and shapes
/// of the leaves, `detail` (options, for people), and whether it is differentiated. A CommError
/// from `forward` gains the call's description. Runs `forward` on the leaves as one node of
/// autograd's graph whose backward is `rule`. The backward must run in the replica whose forward it
/// is; elsewhere it is a NameError. Results that nothing depends on count as zeros. Without a leaf
/// that requires a gradient this is just forward(leaves). `axes` says over which axes the results
/// vary. It matters only in a shard_map with check_vma, which tracks this.
[[nodiscard]] Leaves differentiable(const AxisCall& call, ReplicaGroup& replicas,
                                    const Leaves& leaves, const std::string& detail,
                                    const std::function<Leaves(const Leaves&)>& forward,
                                    const std::function<BackwardRule(const Leaves& results)>& rule,
                                    ResultAxes axes = ResultAxes::as_operand);

}  // namespace lockstep
