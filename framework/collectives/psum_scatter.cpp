#include "framework/collectives/psum_scatter.h"

#include "framework/base/text.h"
#include "framework/collectives/all_gather.h"
#include "framework/collectives/differentiable.h"
#include "framework/collectives/message.h"
#include "framework/collectives/record.h"
#include "framework/collectives/result_memory.h"

namespace lockstep::collectives_detail {

Leaves psum_scatter_leaves(const AxisCall& call, const Leaves& leaves,
                           const PsumScatterOptions& options) {
  ReplicaGroup& replicas = replicas_of(call, options.axis_index_groups, GroupSizes::equal);
  check_leaves(leaves, call);
  const std::int64_t size = replicas.size();
  const Cut cut =
      cut_of(leaves, options.scatter_dimension, "scatter_dimension", size, options.tiled, call);
  return differentiable(
      call, replicas, leaves,
      lockstep::str("scatter_dimension ", options.scatter_dimension, options.tiled ? ", tiled" : "",
                    group_text(options.axis_index_groups)),
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
      [&](const Leaves&) -> BackwardRule {
        return [=](const Leaves& gradients) {
          // A negative dimension counts from the end of the operand, which is longer than its piece
          // by the dimension that is removed: as all_gather counts in its result.
          return all_gather_leaves({"all_gather", call.axes, call.where}, gradients,
                                   {.axis = options.scatter_dimension,
                                    .tiled = options.tiled,
                                    .axis_index_groups = options.axis_index_groups});
        };
      });
}

}  // namespace lockstep::collectives_detail
