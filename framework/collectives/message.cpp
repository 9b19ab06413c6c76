#include "framework/collectives/message.h"

#include <algorithm>
#include <iterator>
#include <string>
#include <utility>

#include <ATen/ops/empty.h>
#include <c10/core/CPUAllocator.h>
#include <c10/util/accumulate.h>

#include "framework/collectives/kept_blocks.h"
#include "framework/collectives/operand.h"
#include "framework/tree/error_place.h"

namespace lockstep::collectives {
namespace {

// LibTorch's allocator makes smaller results (maps/tensor_memory.h).
constexpr std::size_t kLarge = std::size_t{4} << 20;

// Packs the leaves at `indices`, which have one dtype, as in_messages() says.
at::Tensor pack(const Leaves& leaves, const std::vector<std::size_t>& indices,
                std::int64_t slices) {
  const auto shape_of = [&](std::int64_t elements) {
    return slices == 0 ? std::vector{elements} : std::vector{slices, elements / slices};
  };
  if (indices.size() == 1) {
    const at::Tensor& leaf = leaves[indices[0]];
    const at::Tensor whole = as_message(leaf);
    return slices == 0 && whole.dim() == 1 ? whole : whole.view(shape_of(leaf.numel()));
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

// In the order of ElementType, whose further types are neither sent nor saved.
constexpr at::ScalarType kTypes[] = {at::kDouble, at::kFloat, at::kHalf, at::kBFloat16, at::kLong,
                                     at::kInt,    at::kShort, at::kChar, at::kByte,     at::kBool};

// Calls task(). Its exceptions gain the leaf that they are about, and its shape.
void at_leaf(const Leaves& leaves, std::size_t i, const auto& task) {
  placed([&] { return lockstep::str(LeafName{i}, ", ", form_of(leaves[i])); }, task);
}

}  // namespace

std::optional<ElementType> find_element_type(at::ScalarType type) {
  const auto* const found = std::ranges::find(kTypes, type);
  if (found == std::end(kTypes)) return std::nullopt;
  return static_cast<ElementType>(found - std::begin(kTypes));
}

std::optional<at::ScalarType> find_scalar_type(ElementType type) {
  const auto index = static_cast<std::size_t>(type);
  return index < std::size(kTypes) ? std::optional(kTypes[index]) : std::nullopt;
}

ElementType element_type(at::ScalarType type, const AxisCall& call) {
  if (const auto known = find_element_type(type)) return *known;
  throw ValueError(
      lockstep::str(call, ": dtype ", at::toString(type), " is not one that collectives know"));
}

std::ostream& operator<<(std::ostream& out, LeafName leaf) {
  const auto paths = operand_here != nullptr ? operand_here->paths() : std::vector<std::string>();
  return out << tree_detail::leaf_name(paths, leaf.index);
}

void check_leaves(const Leaves& leaves, const AxisCall& call) {
  for (std::size_t i = 0; i < leaves.size(); ++i) {
    const at::Tensor& leaf = leaves[i];
    const LeafName name{i};
    call.require(leaf.defined(), name, " is an undefined tensor");
    call.require(leaf.device().is_cpu(), name, " is on ", leaf.device(),
                 "; only the CPU is supported");
    call.require(leaf.layout() == at::kStrided, name,
                 " is sparse; only dense tensors are supported");
    at_leaf(leaves, i, [&] { (void)element_type(leaf.scalar_type(), call); });
  }
}

std::vector<std::vector<std::size_t>> by_dtype(const Leaves& leaves) {
  std::vector<std::vector<std::size_t>> lists;
  for (std::size_t i = 0; i < leaves.size(); ++i) {
    auto same = std::ranges::find_if(lists, [&](const auto& list) {
      return leaves[list[0]].scalar_type() == leaves[i].scalar_type();
    });
    if (same == lists.end()) same = lists.emplace(same);
    same->push_back(i);
  }
  return lists;
}

at::Tensor part_of(const at::Tensor& flat, std::int64_t offset, at::IntArrayRef sizes) {
  return at::empty({0}, flat.options()).set_(flat.storage(), flat.storage_offset() + offset, sizes);
}

at::Tensor result_memory(at::IntArrayRef sizes, const at::TensorOptions& options) {
  const std::size_t bytes =
      static_cast<std::size_t>(c10::multiply_integers(sizes)) * options.dtype().itemsize();
  if (bytes < kLarge) return at::empty(sizes, options);
  c10::Storage storage(c10::Storage::use_byte_size_t{}, bytes, kept_block(bytes),
                       c10::GetCPUAllocator(), /*resizable=*/true);
  return at::empty({0}, options).set_(storage, 0, sizes);
}

Leaves in_messages(const Leaves& leaves, std::int64_t slices, const MessageFunction& function) {
  Leaves results(leaves.size());
  for (const auto& indices : by_dtype(leaves)) {
    const at::Tensor message = function(pack(leaves, indices, slices), indices.size() > 1);
    std::int64_t offset = 0;
    for (const std::size_t i : indices) {
      const at::IntArrayRef sizes = leaves[i].sizes().slice(slices == 0 ? 0 : 1);
      const std::int64_t elements = c10::multiply_integers(sizes);
      if (message.dim() == 1) {
        const bool is_all = indices.size() == 1 && sizes.size() == 1;
        results[i] = is_all ? message : part_of(message, offset, sizes);
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

std::vector<std::int64_t> wrap_dimensions(const Leaves& leaves, std::int64_t dimension,
                                          std::int64_t further, const char* argument,
                                          const AxisCall& call) {
  std::vector<std::int64_t> wrapped;
  for (std::size_t i = 0; i < leaves.size(); ++i) {
    const std::int64_t count = leaves[i].dim() + further;
    at_leaf(leaves, i, [&] {
      call.require(count > 0, argument, " ", dimension,
                   " is out of range; the tensor has no dimensions");
      call.require(dimension >= -count && dimension < count, argument, " ", dimension,
                   " is out of range; it must be in [", -count, ", ", count - 1, "]");
    });
    wrapped.push_back(dimension < 0 ? dimension + count : dimension);
  }
  return wrapped;
}

Cut cut_of(const Leaves& leaves, std::int64_t dimension, const char* argument, std::int64_t slices,
           bool tiled, const AxisCall& call) {
  Cut cut{wrap_dimensions(leaves, dimension, 0, argument, call), tiled};
  for (std::size_t i = 0; i < leaves.size(); ++i) {
    at_leaf(leaves, i, [&] {
      const std::int64_t length = leaves[i].size(cut.dimensions[i]);
      call.require(tiled ? length % slices == 0 : length == slices, argument, " ", dimension,
                   " has length ", length,
                   tiled ? "; tiled, it must be divisible by the group's size, "
                         : "; untiled, it must be the group's size, ",
                   slices);
    });
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

}  // namespace lockstep::collectives
