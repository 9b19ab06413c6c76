#include "models/layers.h"

#include <ATen/CPUGeneratorImpl.h>
#include <ATen/ops/empty.h>

#include "framework/base/errors.h"
#include "framework/base/text.h"

namespace lockstep {

at::Tensor uniform(const std::vector<std::int64_t>& sizes, double bound, const Key& key) {
  return at::empty(sizes, at::TensorOptions().dtype(at::kFloat))
      .uniform_(-bound, bound, at::detail::createCPUGenerator(key.bits()));
}

void check_inputs(std::string_view model, const at::Tensor& inputs, std::int64_t features) {
  if (inputs.dim() == 2 && inputs.size(1) == features) return;
  throw ValueError(str("model ", model, ": inputs must be (samples, ", features, "), not (",
                       join(inputs.sizes()), ")"));
}

}  // namespace lockstep
