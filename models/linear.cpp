#include "models/linear.h"

#include <ATen/ops/linear.h>

#include "framework/base/errors.h"
#include "framework/base/text.h"
#include "models/layers.h"

namespace lockstep {

Linear::Linear(std::int64_t features, std::int64_t outputs)
    : w_(register_parameter("w", constant({outputs, features}, 1.0))),
      b_(register_parameter("b", constant({outputs}, 0.0))) {}

at::Tensor Linear::forward(const at::Tensor& inputs) {
  check_inputs("linear", inputs, w_.size(1));
  return at::linear(inputs, w_, b_);
}

std::shared_ptr<Model> make_linear(const ModelOptions& options, std::int64_t features,
                                   std::int64_t outputs, const Key& /*key*/) {
  if (!options.hidden.empty() && options.hidden != ModelOptions{}.hidden) {
    throw ValueError(str("model linear has no hidden layers, but hidden is [", join(options.hidden),
                         "]: leave it out or make it []"));
  }
  return std::make_shared<Linear>(features, outputs);
}

}  // namespace lockstep
