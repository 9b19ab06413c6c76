#include "framework/collectives/pvary.h"

#include "framework/collectives/differentiable.h"
#include "framework/collectives/message.h"
#include "framework/collectives/psum.h"

namespace lockstep::collectives_detail {

Leaves pvary_leaves(const AxisCall& call, const Leaves& leaves, bool copies) {
  ReplicaGroup& replicas = replicas_of(call, {}, GroupSizes::any);
  check_leaves(leaves, call);
  return differentiable(
      call, replicas, leaves, "",
      [&](Leaves operands) {
        for (Tensor& operand : operands) operand = copies ? operand.clone() : operand;
        return operands;
      },
      [&](const Leaves&) -> BackwardRule {
        return [=](const Leaves& gradients) {
          return reduce_leaves(Reduction::invariant_sum, {"psum_invariant", call.axes, call.where},
                               gradients, {});
        };
      },
      ResultAxes::gained);
}

}  // namespace lockstep::collectives_detail
