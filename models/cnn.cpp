#include "models/cnn.h"

#include <cmath>
#include <cstddef>
#include <string>

#include <ATen/ops/constant_pad_nd.h>
#include <ATen/ops/conv2d.h>
#include <ATen/ops/max_pool2d.h>
#include <ATen/ops/relu.h>
#include <ATen/ops/stack.h>

#include "framework/base/errors.h"
#include "framework/base/text.h"
#include "framework/training/block.h"
#include "models/layers.h"

namespace lockstep {
namespace {

constexpr std::int64_t kKernel = 3;

// Each pixel's neighbourhood, zeros around the image: (samples, side, side) to a tensor of shape
// (samples, 9, side, side) whose 9 values of a pixel lie behind each other (channels_last).
at::Tensor neighbourhoods(const at::Tensor& images) {
  const std::int64_t side = images.size(1);
  const at::Tensor padded = at::constant_pad_nd(images, {1, 1, 1, 1});
  std::vector<at::Tensor> shifted;
  for (std::int64_t row = 0; row < kKernel; ++row) {
    for (std::int64_t column = 0; column < kKernel; ++column) {
      shifted.push_back(padded.narrow(1, row, side).narrow(2, column, side));
    }
  }
  return at::stack(shifted, 3).permute({0, 3, 1, 2});
}

}  // namespace

// x = relu(max_pool(conv(x))), which is max_pool(relu(conv(x))) at a quarter of the work. Images
// are channels_last all the way: oneDNN then computes the forward in 5 ms where it takes 11
// otherwise (batch 64, 28x28, 32 and 64 channels, one thread). It has no good way for one input
// channel, so that the first convolution is a 1x1 one over neighbourhoods: 10.7 ms for forward and
// backward instead of 12.6.
class Cnn::Convolution : public Block {
 public:
  Convolution(std::int64_t in, std::int64_t out, bool is_first, const Key& key)
      : is_first_(is_first) {
    const double bound = 1.0 / std::sqrt(static_cast<double>(in * kKernel * kKernel));
    weight_ = register_parameter("weight",
                                 uniform({out, in, kKernel, kKernel}, bound, key.fold("weight")));
    bias_ = register_parameter("bias", uniform({out}, bound, key.fold("bias")));
  }

  // The first one's images are (samples, side, side).
  at::Tensor forward(const at::Tensor& images) override {
    const at::Tensor values =
        is_first_ ? at::conv2d(neighbourhoods(images),
                               weight_.view({weight_.size(0), kKernel * kKernel, 1, 1}), bias_)
                  : at::conv2d(images, weight_, bias_, 1, 1);
    return at::relu(at::max_pool2d(values, 2));
  }

 private:
  bool is_first_;
  at::Tensor weight_;
  at::Tensor bias_;
};

Cnn::Cnn(std::int64_t side, const std::vector<std::int64_t>& channels,
         const std::vector<std::int64_t>& dense, std::int64_t outputs, const Key& key)
    : side_(side) {
  const auto conv = register_module("conv", std::make_shared<Container>());
  std::int64_t in = 1;
  for (const std::int64_t out : channels) {
    const std::string name = std::to_string(convolutions_.size());
    convolutions_.push_back(
        conv->register_module(name, std::make_shared<Convolution>(in, out, convolutions_.empty(),
                                                                  key.fold("conv").fold(name))));
    in = out;
    side /= 2;
  }
  dense_ = register_module(
      "dense", std::make_shared<Mlp>(in * side * side, dense, outputs, key.fold("dense")));
}

at::Tensor Cnn::forward(const at::Tensor& inputs) {
  check_inputs("cnn", inputs, side_ * side_);
  at::Tensor values = inputs.reshape({-1, side_, side_});
  for (const auto& convolution : convolutions_) values = (*convolution)(values);
  return dense_->forward(values.flatten(1));
}

std::shared_ptr<Model> make_cnn(const ModelOptions& options, std::int64_t features,
                                std::int64_t outputs, const Key& key) {
  for (const auto* widths : {&options.channels, &options.dense}) {
    for (const std::int64_t width : *widths) {
      if (width >= 1) continue;
      throw ValueError(str("model cnn: channels and widths must be at least 1, not [",
                           join(options.channels), "] and [", join(options.dense), "]"));
    }
  }
  const auto side =
      static_cast<std::int64_t>(std::lround(std::sqrt(static_cast<double>(features))));
  if (side * side != features) {
    throw ValueError(
        str("model cnn: features must be the pixels of square images, not ", features));
  }
  const std::size_t convolutions = options.channels.size();
  if (convolutions > 62 || side >> convolutions == 0) {
    throw ValueError(str("model cnn: images of ", side, "x", side, " cannot be halved ",
                         convolutions, " times, once after each of channels [",
                         join(options.channels), "]"));
  }
  return std::make_shared<Cnn>(side, options.channels, options.dense, outputs, key);
}

}  // namespace lockstep
