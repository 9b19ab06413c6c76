#include "models/resnet.h"

#include <algorithm>
#include <cmath>
#include <string>

#include <ATen/TensorOperators.h>
#include <ATen/ops/conv2d.h>
#include <ATen/ops/linear.h>

#include "framework/base/errors.h"
#include "framework/base/text.h"
#include "framework/training/block.h"
#include "framework/training/recompute.h"
#include "framework/training/stochastic_depth.h"
#include "models/layers.h"

namespace lockstep {

// Of `size`x`size` pixels, 1 or 3, without a bias.
class Convolution : public torch::nn::Module {
 public:
  Convolution(std::int64_t in, std::int64_t out, std::int64_t size, std::int64_t stride,
              const KeyPath& path)
      : stride_(stride),
        weight_(register_parameter("weight",
                                   normal({out, in, size, size}, 0,
                                          std::sqrt(2.0 / static_cast<double>(out * size * size)),
                                          path.key_of("weight")))) {}

  at::Tensor forward(const at::Tensor& images) const {
    return weight_.size(2) == 1 ? at::conv2d(images, weight_, {}, stride_)
                                : convolution(images, weight_, {}, stride_);
  }

 private:
  std::int64_t stride_;
  at::Tensor weight_;
};

namespace {

// relu(shortcut(x) + norm(conv(relu(norm(conv(x))))))
class Residual : public Block {
 public:
  Residual(std::int64_t in, std::int64_t out, std::int64_t stride, double drop_probability,
           const KeyPath& path)
      : conv1_(path.add<Convolution>(*this, "conv1", in, out, 3, stride)),
        bn1_(register_module("bn1", BatchNorm(out))),
        conv2_(path.add<Convolution>(*this, "conv2", out, out, 3, 1)),
        bn2_(register_module("bn2", BatchNorm(out))),
        drop_(register_module("stochastic_depth", StochasticDepth(drop_probability))) {
    if (in == out && stride == 1) return;
    const auto downsample = register_module("downsample", std::make_shared<Container>());
    shortcut_ = (path / "downsample").add<Convolution>(*downsample, "0", in, out, 1, stride);
    shortcut_norm_ = downsample->register_module("1", BatchNorm(out));
  }

  // (samples, in, rows, columns) to (samples, out, rows / stride, columns / stride), rounded up
  at::Tensor forward(const at::Tensor& images) override {
    const at::Tensor inner = bn1_->forward(conv1_->forward(images)).relu_();
    const at::Tensor branch = drop_->forward(bn2_->forward(conv2_->forward(inner)));
    const at::Tensor shortcut =
        shortcut_ ? shortcut_norm_->forward(shortcut_->forward(images)) : images;
    return (shortcut + branch).relu_();
  }

 private:
  std::shared_ptr<Convolution> conv1_;
  BatchNorm bn1_;
  std::shared_ptr<Convolution> conv2_;
  BatchNorm bn2_;
  StochasticDepth drop_;
  std::shared_ptr<Convolution> shortcut_;  // or nothing
  BatchNorm shortcut_norm_{nullptr};
};

keys::ConfigKeys resnet_keys(ResnetOptions& options) {
  const keys::Rule<std::int64_t> depth{"6n + 2, with n from 1 to 200", [](std::int64_t layers) {
                                         return layers >= 8 && layers <= 1202 && layers % 6 == 2;
                                       }};
  // Statistics and BatchNorm's parameters take memory also where the rest has no values yet.
  const auto width = keys::from_to<std::int64_t>(1, 2048);
  return {{"depth", keys::number(options.depth, depth), "layers with weights"},
          {"width", keys::number(options.width, width),
           "channels of the first of three stages; each next has twice as many"},
          {"stochastic_depth", keys::number(options.stochastic_depth, keys::kPart),
           "the probability that the last block is left out"},
          {"recompute",
           keys::flag(options.recompute),
           "run blocks again in the backward instead of keeping activations",
           {.may_change = true}}};
}

void check_resnet(const ResnetOptions& options, const std::vector<std::int64_t>& image,
                  std::int64_t classes) {
  ResnetOptions checked = options;
  keys::check("model resnet", resnet_keys(checked));
  require(std::ranges::min(image) >= 1,
          "model resnet: images (channels, height, width) must not be empty, not (", join(image),
          ")");
  require(classes >= 1, "model resnet: classes must be at least 1, not ", classes);
}

}  // namespace

Resnet::Resnet(const ResnetOptions& options, std::int64_t channels, std::int64_t height,
               std::int64_t width, std::int64_t classes, const Key& key)
    : image_{channels, height, width}, recompute_(options.recompute), first_norm_(nullptr) {
  check_resnet(options, image_, classes);
  const KeyPath path(key);
  first_ = path.add<Convolution>(*this, "conv1", channels, options.width, 3, 1);
  first_norm_ = register_module("bn1", BatchNorm(options.width));
  const std::int64_t blocks_a_stage = (options.depth - 2) / 6;
  const auto blocks = static_cast<double>(3 * blocks_a_stage);
  std::int64_t in = options.width;
  for (std::int64_t stage = 0; stage < 3; ++stage) {
    const std::string layer = "layer" + std::to_string(stage + 1);
    const auto container = register_module(layer, std::make_shared<Container>());
    const std::int64_t out = options.width << stage;
    for (std::int64_t i = 0; i < blocks_a_stage; ++i) {
      const double share = static_cast<double>(blocks_.size() + 1) / blocks;
      const std::int64_t stride = stage > 0 && i == 0 ? 2 : 1;
      blocks_.push_back((path / layer)
                            .add<Residual>(*container, std::to_string(i), in, out, stride,
                                           share * options.stochastic_depth));
      in = out;
    }
  }
  const auto fc = register_module("fc", std::make_shared<Container>());
  const double bound = 1 / std::sqrt(static_cast<double>(in));
  last_weight_ = fc->register_parameter(
      "weight", uniform({classes, in}, bound, (path / "fc").key_of("weight")));
  last_bias_ = fc->register_parameter("bias", constant({classes}, 0));
}

at::Tensor Resnet::forward(const at::Tensor& images) {
  require(images.is_floating_point() && images.dim() == 4 && images.sizes().slice(1) == image_,
          "model resnet: inputs must be floating images (samples, ", join(image_), "), not ",
          c10::toString(images.scalar_type()), " (", join(images.sizes()), ")");
  at::Tensor values = first_norm_->forward(first_->forward(images)).relu_();
  for (const auto& block : blocks_) {
    values = recompute_ ? recompute(*block, values) : (*block)(values);
  }
  return at::linear(values.mean({2, 3}), last_weight_, last_bias_);
}

ModelKind resnet_kind() {
  return model_kind<ResnetOptions>(
      "resnet", "a residual network for small images, normalized over all replicas", resnet_keys,
      [](const ResnetOptions& options, const SampleType& sample,
         const Key& key) -> std::shared_ptr<Model> {
        const auto image = image_of("resnet", sample);
        return std::make_shared<Resnet>(options, image[0], image[1], image[2], sample.outputs(),
                                        key);
      });
}

}  // namespace lockstep
