#include "framework/collectives/all_to_all.h"

#include <cstddef>
#include <string_view>

#include "framework/base/text.h"
#include "framework/collectives/differentiable.h"

namespace lockstep::collectives {

Leaves all_to_all_leaves(const AxisCall& call, const Leaves& leaves, std::int64_t split_axis,
                         std::int64_t concat_axis, const AllToAllOptions& options) {
  auto& replicas = replicas_of(call, options.axis_index_groups, GroupSizes::equal);
  check_leaves(leaves, call);
  const std::int64_t size = replicas.size();
  const bool one_axis = std::string_view(call.operation) == "pswapaxes";
  const Cut split =
      cut_of(leaves, split_axis, one_axis ? "axis" : "split_axis", size, options.tiled, call);
  const Cut concat{wrap_dimensions(leaves, concat_axis, 0, "concat_axis", call), options.tiled};
  return differentiable(
      call, replicas, leaves,
      lockstep::str("split_axis ", split_axis, ", concat_axis ", concat_axis,
                    options.tiled ? ", tiled" : "", group_text(options.axis_index_groups)),
      [&](const Leaves& operands) {
        const Leaves slices = slices_along(split, operands, size);
        return joined_along(concat, in_messages(slices, size, [&](const Tensor& sent, bool) {
                              const Tensor received = result_memory(sent.sizes(), sent.options());
                              const auto slots = static_cast<std::size_t>(size);
                              const std::vector<std::size_t> bytes(slots, sent.nbytes() / slots);
                              replicas.all_to_all(bytes_of(sent), bytes, bytes_of(received), bytes);
                              return received;
                            }));
      },
      // Operand and result have as many dimensions: negative axes mean the same in both.
      backward_calls(call, call.operation, all_to_all_leaves, concat_axis, split_axis, options));
}

}  // namespace lockstep::collectives
