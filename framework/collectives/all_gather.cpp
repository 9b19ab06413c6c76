#include "framework/collectives/all_gather.h"

#include "framework/base/text.h"
#include "framework/collectives/differentiable.h"

namespace lockstep::collectives_detail {

Leaves all_gather_leaves(const AxisCall& call, const Leaves& leaves,
                         const AllGatherOptions& options) {
  groups::ReplicaGroup& replicas = replicas_of(call, options.axis_index_groups, GroupSizes::equal);
  collectives::check_leaves(leaves, call);
  collectives::Cut cut{{}, options.tiled};
  for (const Tensor& leaf : leaves) {
    cut.dimensions.push_back(collectives::wrap_dimension(
        options.axis, leaf.dim() + (options.tiled ? 0 : 1), "axis", call));
  }
  return collectives::differentiable(
      call, replicas, leaves,
      lockstep::str("axis ", options.axis, options.tiled ? ", tiled" : "",
                    collectives::group_text(options.axis_index_groups)),
      [&](const Leaves& operands) {
        return collectives::joined_along(
            cut, collectives::in_messages(operands, 0, [&](const Tensor& mine, bool) {
              const Tensor all =
                  collectives::result_memory({replicas.size(), mine.numel()}, mine.options());
              replicas.all_gather(collectives::bytes_of(mine), collectives::bytes_of(all));
              return all;
            }));
      },
      [&](const Leaves&) -> collectives::BackwardRule {
        return [=](const Leaves& gradients) {
          return psum_scatter_leaves({"psum_scatter", call.axes, call.where}, gradients,
                                     {.scatter_dimension = options.axis,
                                      .tiled = options.tiled,
                                      .axis_index_groups = options.axis_index_groups});
        };
      });
}

Leaves psum_scatter_leaves(const AxisCall& call, const Leaves& leaves,
                           const PsumScatterOptions& options) {
  groups::ReplicaGroup& replicas = replicas_of(call, options.axis_index_groups, GroupSizes::equal);
  collectives::check_leaves(leaves, call);
  const std::int64_t size = replicas.size();
  const collectives::Cut cut = collectives::cut_of(leaves, options.scatter_dimension,
                                                   "scatter_dimension", size, options.tiled, call);
  return collectives::differentiable(
      call, replicas, leaves,
      lockstep::str("scatter_dimension ", options.scatter_dimension, options.tiled ? ", tiled" : "",
                    collectives::group_text(options.axis_index_groups)),
      [&](Leaves operands) {
        for (Tensor& operand : operands) {
          if (operand.scalar_type() == at::kBool) operand = operand.to(at::kLong);
        }
        const Leaves slices = collectives::slices_along(cut, operands, size);
        return collectives::in_messages(slices, size, [&](const Tensor& message, bool) {
          const Tensor own = collectives::result_memory({message.size(1)}, message.options());
          replicas.reduce_scatter(collectives::bytes_of(message), collectives::bytes_of(own),
                                  collectives::element_type(own.scalar_type(), call),
                                  reduce::ReduceOp::sum);
          return own;
        });
      },
      [&](const Leaves&) -> collectives::BackwardRule {
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
