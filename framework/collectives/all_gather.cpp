#include "framework/collectives/all_gather.h"

#include <ATen/ops/empty.h>

#include "framework/base/text.h"
#include "framework/collectives/differentiable.h"
#include "framework/collectives/message.h"
#include "framework/collectives/psum_scatter.h"
#include "framework/collectives/record.h"

namespace lockstep::collectives_detail {
namespace {

// (N, …): the replicas' values of one leaf, to the shape that the caller asked for.
at::Tensor arranged(const at::Tensor& stacked, std::int64_t axis, bool tiled) {
  const at::Tensor moved = stacked.movedim(0, axis);
  if (!tiled) return moved.contiguous();
  auto sizes = stacked.sizes().slice(1).vec();
  sizes[static_cast<std::size_t>(axis)] *= stacked.size(0);
  return moved.contiguous().view(sizes);
}

Leaves gather_all(const AxisCall& call, Communicator& replicas, const Leaves& leaves,
                  const std::vector<std::int64_t>& axes, bool tiled) {
  const std::int64_t size = replicas.size();
  Leaves results(leaves.size());
  for (const auto& indices : by_dtype(leaves)) {
    // The message of each replica: its leaves of this dtype behind each other.
    std::int64_t count = 0;
    for (const std::size_t i : indices) count += leaves[i].numel();
    const auto options = leaves[indices[0]].options();
    at::Tensor mine = as_message(leaves[indices[0]]);
    if (indices.size() > 1) {
      mine = at::empty({count}, options);
      std::int64_t offset = 0;
      for (const std::size_t i : indices) {
        part_of(mine, offset, leaves[i].sizes()).copy_(leaves[i]);
        offset += leaves[i].numel();
      }
    }
    const at::Tensor all = at::empty({size, count}, options);
    communicate(call, [&] { replicas.all_gather(bytes_of(mine), bytes_of(all)); });

    std::int64_t offset = 0;
    for (const std::size_t i : indices) {
      auto sizes = leaves[i].sizes().vec();
      sizes.insert(sizes.begin(), size);
      const at::Tensor stacked = all.narrow(1, offset, leaves[i].numel()).reshape(sizes);
      offset += leaves[i].numel();
      const at::Tensor result = arranged(stacked, axes[i], tiled);
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
