#include "framework/collectives/message.h"

#include <algorithm>
#include <iterator>

#include <ATen/ops/empty.h>
#include <c10/util/accumulate.h>

#include "framework/collectives/result_memory.h"

namespace lockstep {

ElementType element_type(at::ScalarType type, const AxisCall& call) {
  switch (type) {
    case at::kDouble:
      return ElementType::float64;
    case at::kFloat:
      return ElementType::float32;
    case at::kHalf:
      return ElementType::float16;
    case at::kBFloat16:
      return ElementType::bfloat16;
    case at::kLong:
      return ElementType::int64;
    case at::kInt:
      return ElementType::int32;
    case at::kShort:
      return ElementType::int16;
    case at::kChar:
      return ElementType::int8;
    case at::kByte:
      return ElementType::uint8;
    case at::kBool:
      return ElementType::boolean;
    default:
      throw ValueError(
          lockstep::str(call, ": dtype ", at::toString(type), " is not one that collectives know"));
  }
}

void check_leaves(const Leaves& leaves, const AxisCall& call) {
  for (std::size_t i = 0; i < leaves.size(); ++i) {
    const at::Tensor& leaf = leaves[i];
    call.require(leaf.defined(), "leaf ", i, " is an undefined tensor");
    call.require(leaf.device().is_cpu(), "leaf ", i, " is on ", leaf.device(),
                 "; only the CPU is supported");
    call.require(leaf.layout() == at::kStrided, "leaf ", i,
                 " is sparse; only dense tensors are supported");
    (void)element_type(leaf.scalar_type(), call);
  }
}

at::Tensor as_message(const at::Tensor& tensor) {
  return tensor.contiguous().resolve_neg();
}

std::span<std::byte> bytes_of(const at::Tensor& contiguous) {
  return {static_cast<std::byte*>(contiguous.data_ptr()), contiguous.nbytes()};
}

std::vector<std::vector<std::size_t>> by_dtype(const Leaves& leaves) {
  std::vector<std::vector<std::size_t>> lists;
  for (std::size_t i = 0; i < leaves.size(); ++i) {
    const auto same = std::find_if(lists.begin(), lists.end(), [&](const auto& list) {
      return leaves[list[0]].scalar_type() == leaves[i].scalar_type();
    });
    if (same == lists.end()) {
      lists.push_back({i});
    } else {
      same->push_back(i);
    }
  }
  return lists;
}

at::Tensor part_of(const at::Tensor& flat, std::int64_t offset, at::IntArrayRef sizes) {
  return at::empty({0}, flat.options()).set_(flat.storage(), flat.storage_offset() + offset, sizes);
}

namespace {

// The leaves at `indices`, which have one dtype, as in_messages() says.
at::Tensor pack(const Leaves& leaves, const std::vector<std::size_t>& indices,
                std::int64_t slices) {
  const auto shape_of = [&](std::int64_t elements) {
    return slices == 0 ? std::vector{elements} : std::vector{slices, elements / slices};
  };
  if (indices.size() == 1) {
    const at::Tensor& leaf = leaves[indices[0]];
    return as_message(leaf).view(shape_of(leaf.numel()));
  }
  std::int64_t elements = 0;
  for (const std::size_t i : indices) elements += leaves[i].numel();
  const at::Tensor message = result_memory(shape_of(elements), leaves[indices[0]].options());
  std::int64_t offset = 0;
  for (const std::size_t i : indices) {
    const auto shape = shape_of(leaves[i].numel());
    message.narrow(-1, offset, shape.back()).copy_(leaves[i].reshape(shape));
    offset += shape.back();
  }
  return message;
}

}  // namespace

Leaves in_messages(const Leaves& leaves, std::int64_t slices, const Transfer& transfer) {
  Leaves results(leaves.size());
  for (const auto& indices : by_dtype(leaves)) {
    const at::Tensor message = transfer(pack(leaves, indices, slices), indices.size() > 1);
    std::int64_t offset = 0;
    for (const std::size_t i : indices) {
      const at::IntArrayRef sizes = leaves[i].sizes().slice(slices == 0 ? 0 : 1);
      const std::int64_t elements = c10::multiply_integers(sizes);
      if (message.dim() == 1) {
        results[i] = part_of(message, offset, sizes);
      } else {
        auto stacked = sizes.vec();
        stacked.insert(stacked.begin(), message.size(0));
        results[i] = message.narrow(1, offset, elements).reshape(stacked);
      }
      offset += elements;
    }
  }
  return results;
}

std::int64_t wrap_dimension(std::int64_t dimension, std::int64_t dimensions, const char* what,
                            const AxisCall& call) {
  call.require(dimensions > 0, what, " ", dimension,
               " is out of range; the tensor has no dimensions");
  call.require(dimension >= -dimensions && dimension < dimensions, what, " ", dimension,
               " is out of range; it must be in [", -dimensions, ", ", dimensions - 1, "]");
  return dimension < 0 ? dimension + dimensions : dimension;
}

Cut cut_of(const Leaves& leaves, std::int64_t dimension, const char* argument, std::int64_t slices,
           bool tiled, const AxisCall& call) {
  Cut cut{{}, tiled};
  for (const at::Tensor& leaf : leaves) {
    cut.dimensions.push_back(wrap_dimension(dimension, leaf.dim(), argument, call));
    const std::int64_t length = leaf.size(cut.dimensions.back());
    call.require(tiled ? length % slices == 0 : length == slices, argument, " ", dimension,
                 " has length ", length,
                 tiled ? "; tiled, it must be divisible by the group's size, "
                       : "; untiled, it must be the group's size, ",
                 slices);
  }
  return cut;
}

Leaves slices_along(const Cut& cut, const Leaves& leaves, std::int64_t slices) {
  Leaves results;
  for (std::size_t i = 0; i < leaves.size(); ++i) {
    const std::int64_t dimension = cut.dimensions[i];
    auto sizes = leaves[i].sizes().vec();
    if (cut.tiled) {
      sizes[static_cast<std::size_t>(dimension)] /= slices;
      sizes.insert(sizes.begin() + dimension, slices);
    }
    const at::Tensor cut_leaf = cut.tiled ? leaves[i].reshape(sizes) : leaves[i];
    results.push_back(cut_leaf.movedim(dimension, 0));
  }
  return results;
}

Leaves joined_along(const Cut& cut, const Leaves& slices) {
  Leaves results;
  for (std::size_t i = 0; i < slices.size(); ++i) {
    const std::int64_t dimension = cut.dimensions[i];
    const at::Tensor joined = slices[i].movedim(0, dimension).contiguous();
    auto sizes = joined.sizes().vec();
    if (cut.tiled) {
      const auto cut_into = sizes.begin() + dimension;
      *std::next(cut_into) *= *cut_into;
      sizes.erase(cut_into);
    }
    results.push_back(part_of(joined, 0, sizes));
  }
  return results;
}

}  // namespace lockstep
