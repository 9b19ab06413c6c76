#include "framework/collectives/packing.h"

#include "framework/base/errors.h"
#include "framework/base/text.h"
#include "framework/collectives/result_memory.h"

namespace lockstep {

at::Tensor pack(const Leaves& leaves, const std::vector<std::size_t>& indices, std::int64_t rows) {
  if (indices.size() == 1) {
    const at::Tensor& leaf = leaves[indices[0]];
    return as_message(leaf).view({rows, leaf.numel() / rows});
  }
  std::int64_t elements = 0;
  for (const std::size_t i : indices) elements += leaves[i].numel() / rows;
  const at::Tensor message = result_memory({rows, elements}, leaves[indices[0]].options());
  std::int64_t offset = 0;
  for (const std::size_t i : indices) {
    const std::int64_t own = leaves[i].numel() / rows;
    message.narrow(1, offset, own).copy_(leaves[i].reshape({rows, own}));
    offset += own;
  }
  return message;
}

void unpack(const at::Tensor& message, const std::vector<std::size_t>& indices, const Leaves& like,
            Leaves& results) {
  std::int64_t offset = 0;
  for (const std::size_t i : indices) {
    results[i] = part_of(message, offset, like[i].sizes());
    offset += like[i].numel();
  }
}

std::int64_t slices_dimension(const at::Tensor& leaf, std::int64_t dimension, const char* argument,
                              std::int64_t pieces, bool tiled, const AxisCall& call) {
  const auto wrapped = wrap_dimension(dimension, leaf.dim(), argument, call);
  const std::int64_t length = leaf.size(wrapped);
  if (tiled ? length % pieces != 0 : length != pieces) {
    throw ValueError(lockstep::str(call.text(), ": ", argument, " ", dimension, " has length ",
                                   length,
                                   tiled ? "; tiled, it must be divisible by the group's size, "
                                         : "; untiled, it must be the group's size, ",
                                   pieces));
  }
  return wrapped;
}

at::Tensor slices_along(const at::Tensor& leaf, std::int64_t dimension, std::int64_t pieces,
                        bool tiled) {
  if (!tiled) return leaf.movedim(dimension, 0);
  auto sizes = leaf.sizes().vec();
  sizes[static_cast<std::size_t>(dimension)] /= pieces;
  sizes.insert(sizes.begin() + dimension, pieces);
  return leaf.reshape(sizes).movedim(dimension, 0);
}

at::Tensor joined_along(const at::Tensor& slices, std::int64_t dimension, bool tiled) {
  const at::Tensor moved = slices.movedim(0, dimension).contiguous();
  if (!tiled) return moved;
  auto sizes = slices.sizes().slice(1).vec();
  sizes[static_cast<std::size_t>(dimension)] *= slices.size(0);
  return moved.view(sizes);
}

}  // namespace lockstep
