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
namespace {

keys::ConfigKeys mlp_keys(MlpOptions& options) {
  return {{"hidden", keys::list(options.hidden, kWidth), "widths of the hidden layers"}};
}

}  // namespace

// y = relu(x)·wᵀ + b, the first one without relu.
class Mlp::Layer : public Block {
 public:
  Layer(std::int64_t in, std::int64_t out, bool is_first, const KeyPath& path)
      : is_first_(is_first) {
    const double bound = 1.0 / std::sqrt(static_cast<double>(in));
    weight_ = register_parameter("weight", uniform({out, in}, bound, path.key_of("weight")));
    bias_ = register_parameter("bias", uniform({out}, bound, path.key_of("bias")));
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
    layers_.push_back(KeyPath(key).add<Layer>(*this, std::to_string(i), widths[i], widths[i + 1],
                                              /*is_first=*/i == 0));
  }
}

at::Tensor Mlp::forward(const at::Tensor& inputs) {
  at::Tensor values = flat_inputs("mlp", inputs, features_);
  for (const auto& layer : layers_) values = (*layer)(values);
  return values;
}

ModelKind mlp_kind() {
  return model_kind<MlpOptions>("mlp", "fully connected layers with ReLU between them", mlp_keys,
                                [](const MlpOptions& options, const SampleType& sample,
                                   const Key& key) -> std::shared_ptr<Model> {
                                  MlpOptions checked = options;
                                  keys::check("model mlp", mlp_keys(checked));
                                  return std::make_shared<Mlp>(features_of("mlp", sample),
                                                               options.hidden, sample.outputs(),
                                                               key);
                                });
}

}  // namespace lockstep
