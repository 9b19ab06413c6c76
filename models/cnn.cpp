#include "models/cnn.h"

#include <algorithm>
#include <cmath>
#include <cstddef>
#include <string>

#include <ATen/ops/max_pool2d.h>
#include <ATen/ops/relu.h>

#include "framework/base/errors.h"
#include "framework/base/text.h"
#include "framework/training/block.h"
#include "models/layers.h"

namespace lockstep {
namespace {

keys::ConfigKeys cnn_keys(CnnOptions& options) {
  return {
      {"channels", keys::list(options.channels, kWidth), "channels out of each convolution"},
      {"dense", keys::list(options.dense, kWidth), "widths of the layers after the convolutions"}};
}

void check(const CnnOptions& options, const std::vector<std::int64_t>& image,
           std::int64_t outputs) {
  CnnOptions checked = options;
  keys::check("model cnn", cnn_keys(checked));
  require(std::ranges::min(image) >= 1,
          "model cnn: images (channels, height, width) must not be empty, not (", join(image), ")");
  require(outputs >= 1, "model cnn: outputs must be at least 1, not ", outputs);
  const std::size_t convolutions = options.channels.size();
  require(convolutions <= 62 && std::min(image[1], image[2]) >> convolutions > 0,
          "model cnn: images of ", image[1], "x", image[2], " cannot be halved ", convolutions,
          " times, once after each of channels [", join(options.channels), "]");
}

}  // namespace

// x = relu(max_pool(conv(x))), which is max_pool(relu(conv(x))) at a quarter of the work.
class Cnn::Convolution : public Block {
 public:
  Convolution(std::int64_t in, std::int64_t out, const Key& key) {
    const double bound = 1.0 / std::sqrt(static_cast<double>(in * 3 * 3));
    weight_ = register_parameter("weight", uniform({out, in, 3, 3}, bound, key.fold("weight")));
    bias_ = register_parameter("bias", uniform({out}, bound, key.fold("bias")));
  }

  at::Tensor forward(const at::Tensor& images) override {
    return at::relu(at::max_pool2d(convolution(images, weight_, bias_), 2));
  }

 private:
  at::Tensor weight_;
  at::Tensor bias_;
};

Cnn::Cnn(const CnnOptions& options, std::int64_t image_channels, std::int64_t height,
         std::int64_t width, std::int64_t outputs, const Key& key)
    : image_{image_channels, height, width} {
  check(options, image_, outputs);
  const auto conv = register_module("conv", std::make_shared<Container>());
  std::int64_t in = image_channels;
  for (const std::int64_t out : options.channels) {
    const std::string name = std::to_string(convolutions_.size());
    convolutions_.push_back(conv->register_module(
        name, std::make_shared<Convolution>(in, out, key.fold("conv").fold(name))));
    in = out;
    height /= 2;
    width /= 2;
  }
  dense_ = register_module("dense", std::make_shared<Mlp>(in * height * width, options.dense,
                                                          outputs, key.fold("dense")));
}

at::Tensor Cnn::forward(const at::Tensor& inputs) {
  require(inputs.dim() == 4 && inputs.sizes().slice(1) == image_,
          "model cnn: inputs must be (samples, ", join(image_), "), not (", join(inputs.sizes()),
          ")");
  at::Tensor values = inputs;
  for (const auto& layer : convolutions_) values = (*layer)(values);
  return dense_->forward(values.flatten(1));
}

ModelKind cnn_kind() {
  return model_kind<CnnOptions>(
      "cnn", "3x3 convolutions with pooling, then fully connected layers, for images", cnn_keys,
      [](const CnnOptions& options, const SampleType& sample,
         const Key& key) -> std::shared_ptr<Model> {
        const auto image = image_of("cnn", sample);
        return std::make_shared<Cnn>(options, image[0], image[1], image[2], sample.outputs(), key);
      });
}

}  // namespace lockstep
