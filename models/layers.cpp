#include "models/layers.h"

#include <ATen/CPUGeneratorImpl.h>
#include <ATen/ops/empty.h>

#include "framework/base/errors.h"
#include "framework/base/text.h"
#include "models/model.h"

namespace lockstep {

namespace {

thread_local bool shapes_only = false;

at::Tensor floats(const std::vector<std::int64_t>& sizes) {
  return at::empty(
      sizes, at::TensorOptions().dtype(at::kFloat).device(shapes_only ? at::kMeta : at::kCPU));
}

}  // namespace

ShapesOnly::ShapesOnly() : outer_(shapes_only) {
  shapes_only = true;
}

ShapesOnly::~ShapesOnly() {
  shapes_only = outer_;
}

at::Tensor uniform(const std::vector<std::int64_t>& sizes, double bound, const Key& key) {
  if (shapes_only) return floats(sizes);
  return floats(sizes).uniform_(-bound, bound, at::detail::createCPUGenerator(key.bits()));
}

at::Tensor constant(const std::vector<std::int64_t>& sizes, double value) {
  return floats(sizes).fill_(value);
}

void check_inputs(std::string_view model, const at::Tensor& inputs, std::int64_t features) {
  if (inputs.dim() == 2 && inputs.size(1) == features) return;
  throw ValueError(str("model ", model, ": inputs must be (samples, ", features, "), not (",
                       join(inputs.sizes()), ")"));
}

}  // namespace lockstep
