#include "framework/collectives/all_gather.h"

#include "framework/base/text.h"
#include "framework/collectives/differentiable.h"
#include "framework/collectives/message.h"
#include "framework/collectives/packing.h"
#include "framework/collectives/psum_scatter.h"
#include "framework/collectives/record.h"
#include "framework/collectives/result_memory.h"

namespace lockstep::collectives_detail {
namespace {

Leaves gather_all(const AxisCall& call, Communicator& replicas, const Leaves& leaves,
                  const std::vector<std::int64_t>& axes, bool tiled) {
  const std::int64_t size = replicas.size();
  Leaves results(leaves.size());
  for (const auto& indices : by_dtype(leaves)) {
    const at::Tensor mine = pack(leaves, indices, 1);
    const at::Tensor all = result_memory({size, mine.numel()}, mine.options());
    communicate(call, [&] { replicas.all_gather(bytes_of(mine), bytes_of(all)); });

    std::int64_t offset = 0;
    for (const std::size_t i : indices) {
      auto sizes = leaves[i].sizes().vec();
      sizes.insert(sizes.begin(), size);
      const at::Tensor stacked = all.narrow(1, offset, leaves[i].numel()).reshape(sizes);
      offset += leaves[i].numel();
      const at::Tensor result = joined_along(stacked, axes[i], tiled);
      results[i] = part_of(result, 0, result.sizes());
    }
  }
  return results;
}

}  // namespace

std::vector<Tensor> all_gather_leaves(const std::vector<Tensor>& leaves, const AxisNames& axis_name,
                                      const AllGatherOptions& options, std::source_location where) {
  const AxisCall call{"all_gather", axis_name, where};
  ReplicaGroup& replicas = replicas_of(call, options.axis_index_groups, GroupSizes::equal);
  check_leaves(leaves, call);
  std::vector<std::int64_t> axes;
  for (const Tensor& leaf : leaves) {
    axes.push_back(
        wrap_dimension(options.axis, leaf.dim() + (options.tiled ? 0 : 1), "axis", call));
  }
  return differentiable(
      call, replicas, leaves,
      lockstep::str("axis ", options.axis, options.tiled ? ", tiled" : "",
                    group_text(options.axis_index_groups)),
      [&](const Leaves& operands) {
        return gather_all(call, replicas, operands, axes, options.tiled);
      },
      [&](const Leaves&) -> BackwardRule {
        return [=](const Leaves& gradients) {
          return psum_scatter_leaves(gradients, axis_name,
                                     {.scatter_dimension = options.axis,
                                      .tiled = options.tiled,
                                      .axis_index_groups = options.axis_index_groups},
                                     where);
        };
      });
}

}  // namespace lockstep::collectives_detail
