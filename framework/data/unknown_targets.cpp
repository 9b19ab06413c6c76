#include "framework/data/unknown_targets.h"

#include <limits>
#include <vector>

#include <ATen/ops/full.h>

namespace lockstep::data {

at::Tensor unknown_targets(const TensorType& type, std::int64_t count) {
  const std::vector<std::int64_t> sizes = type.sizes(count);
  if (type.dtype == at::kLong) return at::full(sizes, -1, type.dtype);
  return at::full(sizes, std::numeric_limits<double>::quiet_NaN(), type.dtype);
}

}  // namespace lockstep::data
