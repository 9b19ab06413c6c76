#include "framework/collectives/pvary.h"

#include "framework/collectives/differentiable.h"
#include "framework/collectives/message.h"
#include "framework/collectives/psum.h"

namespace lockstep::collectives_detail {

std::vector<Tensor> pvary_leaves(const std::vector<Tensor>& leaves, const AxisNames& axis_name,
                                 std::source_location where, bool copies) {
  const AxisCall call{"pvary", axis_name, where};
  ReplicaGroup& replicas = replicas_of(call, {}, GroupSizes::any);
  check_leaves(leaves, call);
  return differentiable(
      call, replicas, leaves, "",
      [&](const Leaves& operands) {
        Leaves results;
        for (const Tensor& operand : operands) {
          results.push_back(copies ? operand.clone() : operand);
        }
        return results;
      },
      [&](const Leaves&) -> BackwardRule {
        return [=](const Leaves& gradients) {
          return reduce_leaves(Reduction::invariant_sum, gradients, axis_name, {}, where);
        };
      },
      ResultAxes::gained);
}

}  // namespace lockstep::collectives_detail
