#include "framework/collectives/psum_scatter.h"

#include "framework/base/text.h"
#include "framework/collectives/all_gather.h"
#include "framework/collectives/differentiable.h"
#include "framework/collectives/message.h"
#include "framework/collectives/packing.h"
#include "framework/collectives/record.h"
#include "framework/collectives/result_memory.h"

namespace lockstep::collectives_detail {
namespace {

Leaves scatter_all(const AxisCall& call, Communicator& replicas, const Leaves& slices) {
  Leaves results(slices.size());
  const std::int64_t size = replicas.size();
  for (const auto& indices : by_dtype(slices)) {
    const at::Tensor message = pack(slices, indices, size);
    const at::Tensor own = result_memory({message.size(1)}, message.options());
    communicate(call, [&] {
      replicas.reduce_scatter(bytes_of(message), bytes_of(own),
                              element_type(own.scalar_type(), call), ReduceOp::sum);
    });
    std::int64_t offset = 0;
    for (const std::size_t i : indices) {
      results[i] = part_of(own, offset, slices[i].sizes().slice(1));
      offset += results[i].numel();
    }
  }
  return results;
}

}  // namespace

std::vector<Tensor> psum_scatter_leaves(const std::vector<Tensor>& leaves,
                                        const AxisNames& axis_name,
                                        const PsumScatterOptions& options,
                                        std::source_location where) {
  const AxisCall call{"psum_scatter", axis_name, where};
  ReplicaGroup& replicas = replicas_of(call, options.axis_index_groups, GroupSizes::equal);
  check_leaves(leaves, call);
  std::vector<std::int64_t> dimensions;
  for (const Tensor& leaf : leaves) {
    dimensions.push_back(slices_dimension(leaf, options.scatter_dimension, "scatter_dimension",
                                          replicas.size(), options.tiled, call));
  }
  return differentiable(
      call, replicas, leaves,
      lockstep::str("scatter_dimension ", options.scatter_dimension, options.tiled ? ", tiled" : "",
                    group_text(options.axis_index_groups)),
      [&](const Leaves& operands) {
        Leaves slices;
        for (std::size_t i = 0; i < operands.size(); ++i) {
          const bool counts = operands[i].scalar_type() == at::kBool;
          slices.push_back(slices_along(counts ? operands[i].to(at::kLong) : operands[i],
                                        dimensions[i], replicas.size(), options.tiled));
        }
        return scatter_all(call, replicas, slices);
      },
      [&](const Leaves&) -> BackwardRule {
        return [=](const Leaves& gradients) {
          // A negative dimension counts from the end of the operand, which is longer than its piece
          // by the dimension that is removed: as all_gather counts in its result.
          return all_gather_leaves(gradients, axis_name,
                                   {.axis = options.scatter_dimension,
                                    .tiled = options.tiled,
                                    .axis_index_groups = options.axis_index_groups},
                                   where);
        };
      });
}

}  // namespace lockstep::collectives_detail
