#include "framework/collectives/axis_index.h"

#include <ATen/ops/scalar_tensor.h>

#include "framework/axes/environment.h"
#include "framework/base/range.h"
#include "framework/collectives/varying.h"

namespace lockstep {

std::int64_t axis_index(const AxisNames& axis_name, std::source_location where) {
  const AxisCall call{"axis_index", axis_name, where};
  const std::int64_t index = axis_index_of(call).index;
  collectives::refuse_if_tracked(
      call,
      "nothing can follow what C++ makes of a number that replicas have each their own: use "
      "axis_index_tensor; and trainers, which average gradients themselves, without check_vma");
  return index;
}

Tensor axis_index_tensor(const AxisNames& axis_name, std::source_location where) {
  const AxisCall call{"axis_index_tensor", axis_name, where};
  Tensor index = at::scalar_tensor(axis_index_of(call).index, at::kLong);
  if (tree::Variance* const variance = tree::current_variance()) {
    variance->add(index, variance->set_of(axis_name.names()));
  }
  return index;
}

std::int64_t axis_size(const AxisNames& axis_name, std::source_location where) {
  return axis_index_of({"axis_size", axis_name, where}).size;
}

Tensor own_part(const Tensor& tensor, const AxisNames& axis_name, std::source_location where) {
  const AxisCall call{"own_part", axis_name, where};
  const auto own = axis_index_of(call);
  collectives::refuse_if_tracked(call, "use in_specs, which say of all that is cut");
  call.require(tensor.defined() && tensor.dim() > 0, "the tensor has no dimension to cut");
  const Range rows = shard_samples(tensor.size(0), own.size, own.index);
  return tensor.narrow(0, rows.offset, rows.size);
}

}  // namespace lockstep
