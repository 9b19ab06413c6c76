#include "models/mlp.h"

#include <cmath>
#include <string>

#include <ATen/ops/linear.h>
#include <ATen/ops/relu.h>

#include "framework/base/errors.h"
#include "framework/base/text.h"
#include "models/layers.h"

namespace lockstep {
namespace {

// A parameter's name may hold no dot: "0.weight" is the parameter "weight" of a module "0".
class Parameters : public torch::nn::Module {};

}  // namespace

Mlp::Mlp(std::int64_t features, const std::vector<std::int64_t>& hidden, std::int64_t outputs,
         const Key& key) {
  std::vector<std::int64_t> widths{features};
  widths.insert(widths.end(), hidden.begin(), hidden.end());
  widths.push_back(outputs);
  for (std::size_t i = 0; i + 1 < widths.size(); ++i) {
    const std::int64_t in = widths[i];
    const std::int64_t out = widths[i + 1];
    const double bound = 1.0 / std::sqrt(static_cast<double>(in));
    const std::string path = std::to_string(i);
    const auto layer = register_module(path, std::make_shared<Parameters>());
    layers_.push_back(
        {layer->register_parameter("weight", uniform({out, in}, bound, key.fold(path + ".weight"))),
         layer->register_parameter("bias", uniform({out}, bound, key.fold(path + ".bias")))});
  }
}

at::Tensor Mlp::forward(const at::Tensor& inputs) {
  check_inputs("mlp", inputs, layers_.front().weight.size(1));
  at::Tensor values = inputs;
  for (std::size_t i = 0; i < layers_.size(); ++i) {
    values = at::linear(i == 0 ? values : at::relu(values), layers_[i].weight, layers_[i].bias);
  }
  return values;
}

std::shared_ptr<Model> make_mlp(const ModelOptions& options, std::int64_t features,
                                std::int64_t outputs, const Key& key) {
  for (const std::int64_t width : options.hidden) {
    if (width >= 1) continue;
    throw ValueError(
        str("model mlp: hidden widths must be at least 1, not [", join(options.hidden), "]"));
  }
  return std::make_shared<Mlp>(features, options.hidden, outputs, key);
}

}  // namespace lockstep
