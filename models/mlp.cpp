#include "models/mlp.h"

#include <cmath>
#include <string>

#include <ATen/ops/linear.h>
#include <ATen/ops/relu.h>

#include "framework/base/errors.h"
#include "framework/base/text.h"
#include "framework/training/block.h"
#include "models/layers.h"

namespace lockstep {
// y = relu(x)·wᵀ + b, the first one without relu.
class Mlp::Layer : public Block {
 public:
  Layer(std::int64_t in, std::int64_t out, bool is_first, const std::string& path, const Key& key)
      : is_first_(is_first) {
    const double bound = 1.0 / std::sqrt(static_cast<double>(in));
    weight_ = register_parameter("weight", uniform({out, in}, bound, key.fold(path + ".weight")));
    bias_ = register_parameter("bias", uniform({out}, bound, key.fold(path + ".bias")));
  }

  at::Tensor forward(const at::Tensor& values) override {
    return at::linear(is_first_ ? values : at::relu(values), weight_, bias_);
  }

 private:
  bool is_first_;
  at::Tensor weight_;
  at::Tensor bias_;
};

Mlp::Mlp(std::int64_t features, const std::vector<std::int64_t>& hidden, std::int64_t outputs,
         const Key& key)
    : features_(features) {
  std::vector<std::int64_t> widths{features};
  widths.insert(widths.end(), hidden.begin(), hidden.end());
  widths.push_back(outputs);
  for (std::size_t i = 0; i + 1 < widths.size(); ++i) {
    const std::string path = std::to_string(i);
    layers_.push_back(register_module(
        path, std::make_shared<Layer>(widths[i], widths[i + 1], i == 0, path, key)));
  }
}

at::Tensor Mlp::forward(const at::Tensor& inputs) {
  check_inputs("mlp", inputs, features_);
  at::Tensor values = inputs;
  for (const auto& layer : layers_) values = (*layer)(values);
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
