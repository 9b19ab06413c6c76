#include "framework/collectives/psum_scatter.h"

#include <ATen/ops/empty.h>

#include "framework/base/text.h"
#include "framework/collectives/all_gather.h"
#include "framework/collectives/differentiable.h"
#include "framework/collectives/message.h"
#include "framework/collectives/record.h"

namespace lockstep::collectives_detail {
namespace {

// A leaf of shape (…, d, …) as (N, …): slice r is what replica r receives.
at::Tensor slices_of(const at::Tensor& leaf, std::int64_t dimension, std::int64_t size,
                     bool tiled) {
  const at::Tensor counted = leaf.scalar_type() == at::kBool ? leaf.to(at::kLong) : leaf;
  if (!tiled) return counted.movedim(dimension, 0);
  auto sizes = counted.sizes().vec();
  sizes[static_cast<std::size_t>(dimension)] /= size;
  sizes.insert(sizes.begin() + dimension, size);
  return counted.reshape(sizes).movedim(dimension, 0);
}

Leaves scatter_all(const AxisCall& call, Communicator& replicas, const Leaves& slices) {
  Leaves results(slices.size());
  const std::int64_t size = replicas.size();
  for (const auto& indices : by_dtype(slices)) {
    const at::Tensor& first = slices[indices[0]];
    std::int64_t count = 0;  // elements a replica receives
    for (const std::size_t i : indices) count += slices[i].numel() / size;
    at::Tensor message = as_message(first);
    if (indices.size() > 1) {
      message = at::empty({size, count}, first.options());
      std::int64_t offset = 0;
      for (const std::size_t i : indices) {
        const std::int64_t own = slices[i].numel() / size;
        message.narrow(1, offset, own).copy_(slices[i].reshape({size, own}));
        offset += own;
      }
    }
    const at::Tensor own = at::empty({count}, first.options());
    communicate(call, [&] {
      replicas.reduce_scatter(bytes_of(message), bytes_of(own),
                              element_type(first.scalar_type(), call), ReduceOp::sum);
    });
    std::int64_t offset = 0;
    for (const std::size_t i : indices) {
      results[i] = part_of(own, offset, slices[i].sizes().slice(1));
      offset += results[i].numel();
    }
  }
  return results;
}

std::int64_t checked_dimension(const AxisCall& call, const Tensor& leaf, std::int64_t replicas,
                               const PsumScatterOptions& options) {
  const auto dimension =
      wrap_dimension(options.scatter_dimension, leaf.dim(), "scatter_dimension", call);
  const std::int64_t length = leaf.size(dimension);
  if (options.tiled ? length % replicas != 0 : length != replicas) {
    throw ValueError(lockstep::str(
        call.text(), ": scatter_dimension ", options.scatter_dimension, " has length ", length,
        options.tiled ? "; tiled, it must be divisible by the group's size, "
                      : "; untiled, it must be the group's size, ",
        replicas));
  }
  return dimension;
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
    dimensions.push_back(checked_dimension(call, leaf, replicas.size(), options));
  }
  return differentiable(
      call, replicas, leaves,
      lockstep::str("scatter_dimension ", options.scatter_dimension, options.tiled ? ", tiled" : "",
                    group_text(options.axis_index_groups)),
      [&](const Leaves& operands) {
        Leaves slices;
        for (std::size_t i = 0; i < operands.size(); ++i) {
          slices.push_back(slices_of(operands[i], dimensions[i], replicas.size(), options.tiled));
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
