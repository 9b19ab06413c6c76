#include "framework/collectives/all_gather.h"

#include "framework/base/text.h"
#include "framework/collectives/differentiable.h"

namespace lockstep::collectives {

Leaves all_gather_leaves(const AxisCall& call, const Leaves& leaves, std::int64_t axis, bool tiled,
                         const AxisIndexGroups& groups) {
  groups::ReplicaGroup& replicas = replicas_of(call, groups, GroupSizes::equal);
  check_leaves(leaves, call);
  const Cut cut{wrap_dimensions(leaves, axis, tiled ? 0 : 1, "axis", call), tiled};
  return differentiable(
      call, replicas, leaves,
      lockstep::str("axis ", axis, tiled ? ", tiled" : "", group_text(groups)),
      [&](const Leaves& operands) {
        return joined_along(
            cut, in_messages(operands, 0, [&](const Tensor& mine, bool) {
              const Tensor all = result_memory({replicas.size(), mine.numel()}, mine.options());
              replicas.all_gather(bytes_of(mine), bytes_of(all));
              return all;
            }));
      },
      backward_calls(call, "psum_scatter", psum_scatter_leaves, axis, tiled, groups));
}

Leaves psum_scatter_leaves(const AxisCall& call, const Leaves& leaves, std::int64_t dimension,
                           bool tiled, const AxisIndexGroups& groups) {
  groups::ReplicaGroup& replicas = replicas_of(call, groups, GroupSizes::equal);
  check_leaves(leaves, call);
  const std::int64_t size = replicas.size();
  const Cut cut = cut_of(leaves, dimension, "scatter_dimension", size, tiled, call);
  return differentiable(
      call, replicas, leaves,
      lockstep::str("scatter_dimension ", dimension, tiled ? ", tiled" : "", group_text(groups)),
      [&](Leaves operands) {
        for (Tensor& operand : operands) {
          if (operand.scalar_type() == at::kBool) operand = operand.to(at::kLong);
        }
        const Leaves slices = slices_along(cut, operands, size);
        return in_messages(slices, size, [&](const Tensor& message, bool) {
          const Tensor own = result_memory({message.size(1)}, message.options());
          replicas.reduce_scatter(bytes_of(message), bytes_of(own),
                                  element_type(own.scalar_type(), call), ReduceOp::sum);
          return own;
        });
      },
      // A negative dimension counts from the end of the operand, which is longer than its piece by
      // the dimension that is removed: as all_gather counts in its result.
      backward_calls(call, "all_gather", all_gather_leaves, dimension, tiled, groups));
}

}  // namespace lockstep::collectives
