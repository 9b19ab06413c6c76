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

ModelKind linear_kind() {
  return model_kind("linear", "one fully connected layer, from w = 1 and b = 0",
                    [](const SampleType& sample, const Key& /*key*/) {
                      return std::make_shared<Linear>(features_of("linear", sample),
                                                      sample.outputs());
                    });
}

}  // namespace lockstep
