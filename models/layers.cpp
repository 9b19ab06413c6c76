#include "models/layers.h"

#include <functional>
#include <utility>

#include <ATen/CPUGeneratorImpl.h>
#include <ATen/ops/constant_pad_nd.h>
#include <ATen/ops/conv2d.h>
#include <ATen/ops/empty.h>
#include <ATen/ops/stack.h>

#include "framework/base/errors.h"
#include "framework/base/text.h"
#include "framework/training/safe_convolutions.h"
#include "models/model.h"

namespace lockstep {

namespace {

constexpr std::int64_t kKernel = 3;

// Each pixel's neighbourhood, zeros around the image: (samples, 1, rows, columns) to a tensor of
// shape (samples, 9, rows, columns) whose 9 values of a pixel lie behind each other
// (channels_last).
at::Tensor neighbourhoods(const at::Tensor& images) {
  const at::Tensor padded = at::constant_pad_nd(images.squeeze(1), {1, 1, 1, 1});
  std::vector<at::Tensor> shifted;
  for (std::int64_t row = 0; row < kKernel; ++row) {
    for (std::int64_t column = 0; column < kKernel; ++column) {
      shifted.push_back(padded.narrow(1, row, images.size(2)).narrow(2, column, images.size(3)));
    }
  }
  return at::stack(shifted, 3).permute({0, 3, 1, 2});
}

// What `make` makes, now or later.
at::Tensor now_or_deferred(const std::vector<std::int64_t>& sizes,
                           std::function<at::Tensor()> make) {
  DeferredValues* const deferred = DeferredValues::current();
  return deferred == nullptr ? make() : deferred->deferred(sizes, std::move(make));
}

}  // namespace

at::Tensor uniform(const std::vector<std::int64_t>& sizes, double bound, const Key& key) {
  return now_or_deferred(sizes, [=] {
    return at::empty(sizes, at::kFloat)
        .uniform_(-bound, bound, at::detail::createCPUGenerator(key.bits()));
  });
}

at::Tensor normal(const std::vector<std::int64_t>& sizes, double mean, double deviation,
                  const Key& key) {
  return now_or_deferred(sizes, [=] {
    return at::empty(sizes, at::kFloat)
        .normal_(mean, deviation, at::detail::createCPUGenerator(key.bits()));
  });
}

at::Tensor constant(const std::vector<std::int64_t>& sizes, double value) {
  return now_or_deferred(sizes, [=] { return at::empty(sizes, at::kFloat).fill_(value); });
}

// Images are channels_last all the way: oneDNN then computes the forward in 5 ms where it takes 11
// otherwise (batch 64, 28x28, 32 and 64 channels, one thread). It has no good way for one input
// channel, so that such a convolution is a 1x1 one over neighbourhoods: 10.7 ms for forward and
// backward instead of 12.6.
at::Tensor convolution(const at::Tensor& images, const at::Tensor& weight, const at::Tensor& bias,
                       std::int64_t stride) {
  training::keep_convolutions_safe();
  if (images.size(1) == 1 && stride == 1) {
    return at::conv2d(neighbourhoods(images),
                      weight.view({weight.size(0), kKernel * kKernel, 1, 1}), bias);
  }
  return at::conv2d(images.contiguous(at::MemoryFormat::ChannelsLast), weight, bias, stride,
                    /*padding=*/1);
}

at::Tensor flat_inputs(std::string_view model, const at::Tensor& inputs, std::int64_t features) {
  require(inputs.dim() >= 2 && inputs.is_floating_point() &&
              inputs.numel() == inputs.size(0) * features,
          "model ", model, ": inputs must be floating, (samples, ", features,
          ") or of as many values, not ", c10::toString(inputs.scalar_type()), " (",
          join(inputs.sizes()), ")");
  return inputs.dim() == 2 ? inputs : inputs.flatten(1);
}

std::int64_t features_of(std::string_view model, const SampleType& sample) {
  require(at::isFloatingType(sample.input.dtype), "model ", model, " takes floating inputs, not ",
          c10::toString(sample.input.dtype));
  return sample.input.values();
}

std::vector<std::int64_t> image_of(std::string_view model, const SampleType& sample) {
  require(at::isFloatingType(sample.input.dtype) && sample.input.shape.size() == 3, "model ", model,
          " takes floating images (channels, height, width), not ",
          c10::toString(sample.input.dtype), " (", join(sample.input.shape), ")");
  return sample.input.shape;
}

}  // namespace lockstep
