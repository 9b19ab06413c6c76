#include "framework/collectives/message.h"

#include <algorithm>

#include <ATen/ops/empty.h>

#include "framework/base/text.h"

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
      throw ValueError(lockstep::str(call.text(), ": dtype ", at::toString(type),
                                     " is not one that collectives know"));
  }
}

void check_leaves(const Leaves& leaves, const AxisCall& call) {
  for (std::size_t i = 0; i < leaves.size(); ++i) {
    const at::Tensor& leaf = leaves[i];
    const auto refuse = [&](const std::string& what) {
      throw ValueError(lockstep::str(call.text(), ": leaf ", i, " ", what));
    };
    if (!leaf.defined()) refuse("is an undefined tensor");
    if (!leaf.device().is_cpu())
      refuse("is on " + leaf.device().str() + "; only the CPU is supported");
    if (leaf.layout() != at::kStrided) refuse("is sparse; only dense tensors are supported");
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
  std::vector<std::int64_t> strides(sizes.size());
  std::int64_t stride = 1;
  for (std::size_t d = sizes.size(); d-- > 0;) {
    strides[d] = stride;
    stride *= std::max<std::int64_t>(sizes[d], 1);
  }
  return at::empty({0}, flat.options())
      .set_(flat.storage(), flat.storage_offset() + offset, sizes, strides);
}

std::int64_t wrap_dimension(std::int64_t dimension, std::int64_t dimensions, const char* what,
                            const AxisCall& call) {
  if (dimension < -dimensions || dimension >= dimensions) {
    throw ValueError(lockstep::str(call.text(), ": ", what, " ", dimension, " is out of range; ",
                                   dimensions == 0 ? std::string("the tensor has no dimensions")
                                                   : lockstep::str("it must be in [", -dimensions,
                                                                   ", ", dimensions - 1, "]")));
  }
  return dimension < 0 ? dimension + dimensions : dimension;
}

}  // namespace lockstep
