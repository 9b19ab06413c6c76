#include "models/linear.h"

#include <ATen/ops/linear.h>

#include "models/layers.h"

namespace lockstep {

Linear::Linear(std::int64_t features, std::int64_t outputs)
    : w_(register_parameter("w", constant({outputs, features}, 1.0))),
      b_(register_parameter("b", constant({outputs}, 0.0))) {}

at::Tensor Linear::forward(const at::Tensor& inputs) {
  return at::linear(flat_inputs("linear", inputs, w_.size(1)), w_, b_);
}

namespace {

struct NoOptions {};

}  // namespace

ModelKind linear_kind() {
  return model_kind<NoOptions>(
      "linear", "one fully connected layer, from w = 1 and b = 0",
      [](NoOptions& /*options*/) { return keys::Keys(); },
      [](const NoOptions& /*options*/, const SampleType& sample,
         const Key& /*key*/) -> std::shared_ptr<Model> {
        return std::make_shared<Linear>(features_of("linear", sample), sample.outputs());
      });
}

}  // namespace lockstep
