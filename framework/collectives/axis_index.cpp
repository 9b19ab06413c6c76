#include "framework/collectives/axis_index.h"

#include <ATen/ops/scalar_tensor.h>

#include "framework/axes/environment.h"
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

}  // namespace lockstep
