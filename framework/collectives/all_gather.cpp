#include "framework/collectives/all_gather.h"

#include "framework/base/text.h"
#include "framework/collectives/differentiable.h"
#include "framework/collectives/message.h"
#include "framework/collectives/psum_scatter.h"
#include "framework/collectives/record.h"
#include "framework/collectives/result_memory.h"

namespace lockstep::collectives_detail {

Leaves all_gather_leaves(const AxisCall& call, const Leaves& leaves,
                         const AllGatherOptions& options) {
  ReplicaGroup& replicas = replicas_of(call, options.axis_index_groups, GroupSizes::equal);
  check_leaves(leaves, call);
  Cut cut{{}, options.tiled};
  for (const Tensor& leaf : leaves) {
    cut.dimensions.push_back(
        wrap_dimension(options.axis, leaf.dim() + (options.tiled ? 0 : 1), "axis", call));
  }
  return differentiable(
      call, replicas, leaves,
      lockstep::str("axis ", options.axis, options.tiled ? ", tiled" : "",
                    group_text(options.axis_index_groups)),
      [&](const Leaves& operands) {
        return joined_along(
            cut, in_messages(operands, 0, [&](const Tensor& mine, bool) {
              const Tensor all = result_memory({replicas.size(), mine.numel()}, mine.options());
              replicas.all_gather(bytes_of(mine), bytes_of(all));
              return all;
            }));
      },
      [&](const Leaves&) -> BackwardRule {
        return [=](const Leaves& gradients) {
          return psum_scatter_leaves({"psum_scatter", call.axes, call.where}, gradients,
                                     {.scatter_dimension = options.axis,
                                      .tiled = options.tiled,
                                      .axis_index_groups = options.axis_index_groups});
        };
      });
}

}  // namespace lockstep::collectives_detail
