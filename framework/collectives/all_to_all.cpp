#include "framework/collectives/all_to_all.h"

#include <cstddef>
#include <string_view>

#include "framework/base/text.h"
#include "framework/collectives/differentiable.h"
#include "framework/collectives/message.h"
#include "framework/collectives/packing.h"
#include "framework/collectives/record.h"
#include "framework/collectives/result_memory.h"

namespace lockstep::collectives_detail {
namespace {

// Slice r of each leaf goes to replica r; the results have what came from it there.
Leaves exchange_slices(const AxisCall& call, Communicator& replicas, const Leaves& slices) {
  const std::int64_t size = replicas.size();
  Leaves results(slices.size());
  for (const auto& indices : by_dtype(slices)) {
    const at::Tensor sent = pack(slices, indices, size);
    const at::Tensor received = result_memory_like(sent);
    const auto slots = static_cast<std::size_t>(size);
    const std::vector<std::size_t> bytes(slots, sent.nbytes() / slots);
    communicate(call,
                [&] { replicas.all_to_all(bytes_of(sent), bytes, bytes_of(received), bytes); });
    std::int64_t offset = 0;
    for (const std::size_t i : indices) {
      const std::int64_t own = slices[i].numel() / size;
      results[i] = received.narrow(1, offset, own).reshape(slices[i].sizes());
      offset += own;
    }
  }
  return results;
}

}  // namespace

std::vector<Tensor> all_to_all_leaves(const char* operation, const std::vector<Tensor>& leaves,
                                      const AxisNames& axis_name, std::int64_t split_axis,
                                      std::int64_t concat_axis, const AllToAllOptions& options,
                                      std::source_location where) {
  const AxisCall call{operation, axis_name, where};
  auto& replicas = replicas_of(call, options.axis_index_groups, GroupSizes::equal);
  check_leaves(leaves, call);
  const char* const split_name = std::string_view(operation) == "pswapaxes" ? "axis" : "split_axis";
  std::vector<std::int64_t> splits;
  std::vector<std::int64_t> concats;
  for (const Tensor& leaf : leaves) {
    splits.push_back(
        slices_dimension(leaf, split_axis, split_name, replicas.size(), options.tiled, call));
    concats.push_back(wrap_dimension(concat_axis, leaf.dim(), "concat_axis", call));
  }
  return differentiable(
      call, replicas, leaves,
      lockstep::str("split_axis ", split_axis, ", concat_axis ", concat_axis,
                    options.tiled ? ", tiled" : "", group_text(options.axis_index_groups)),
      [&](const Leaves& operands) {
        Leaves slices;
        for (std::size_t i = 0; i < operands.size(); ++i) {
          slices.push_back(slices_along(operands[i], splits[i], replicas.size(), options.tiled));
        }
        Leaves results = exchange_slices(call, replicas, slices);
        for (std::size_t i = 0; i < results.size(); ++i) {
          const at::Tensor joined = joined_along(results[i], concats[i], options.tiled);
          results[i] = part_of(joined, 0, joined.sizes());
        }
        return results;
      },
      [&](const Leaves&) -> BackwardRule {
        // Operand and result have as many dimensions: negative axes mean the same in both.
        return [=](const Leaves& gradients) {
          return all_to_all_leaves(operation, gradients, axis_name, concat_axis, split_axis,
                                   options, where);
        };
      });
}

}  // namespace lockstep::collectives_detail
