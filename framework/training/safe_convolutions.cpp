#include "framework/training/safe_convolutions.h"

#include <algorithm>
#include <array>
#include <atomic>
#include <cstddef>
#include <limits>
#include <tuple>
#include <vector>

#include <ATen/core/Tensor.h>
#include <ATen/ops/convolution_backward_compositeexplicitautograd_dispatch.h>
#include <ATen/ops/empty.h>
#include <torch/library.h>

namespace lockstep::training {
namespace {

namespace torchs = at::compositeexplicitautograd;  // LibTorch's own ways, for all devices

// How many floats an AVX-512 register has. oneDNN's blocks of channels are no larger.
constexpr std::int64_t kLargestBlock = 16;

std::atomic<bool> made_safe{false};

bool all_are(c10::IntArrayRef values, std::int64_t value) {
  return std::all_of(values.begin(), values.end(), [&](std::int64_t one) { return one == value; });
}

// Every stride-th pixel.
at::Tensor strided(at::Tensor images, c10::IntArrayRef stride) {
  for (std::int64_t dim = 2; dim < images.dim(); ++dim) {
    const std::size_t i = stride.size() == 1 ? 0 : static_cast<std::size_t>(dim - 2);
    images = images.slice(dim, 0, std::numeric_limits<std::int64_t>::max(), stride[i]);
  }
  return images;
}

at::Tensor strided_copy(const at::Tensor& images, c10::IntArrayRef stride) {
  return strided(images, stride).contiguous(images.suggest_memory_format());
}

std::tuple<at::Tensor, at::Tensor, at::Tensor> backward(
    const at::Tensor& gradient, const at::Tensor& input, const at::Tensor& weight,
    at::OptionalIntArrayRef bias, at::IntArrayRef stride, at::IntArrayRef padding,
    at::IntArrayRef dilation, bool transposed, at::IntArrayRef output_padding, std::int64_t groups,
    std::array<bool, 3> wanted) {
  if (input.numel() == 0 || !may_overrun(weight.sizes(), stride, padding, groups)) {
    return torchs::convolution_backward(gradient, input, weight, bias, stride, padding, dilation,
                                        transposed, output_padding, groups, wanted);
  }
  made_safe = true;
  const std::vector<std::int64_t> ones(stride.size(), 1);
  if (transposed) {
    const std::vector<std::int64_t> none(output_padding.size(), 0);
    auto [inputs, weights, biases] = torchs::convolution_backward(
        strided_copy(gradient, stride), input, weight, bias, ones, padding, dilation, transposed,
        none, groups, {wanted[0], wanted[1], false});
    if (wanted[2]) biases = gradient.transpose(0, 1).flatten(1).sum(1);
    return {inputs, weights, biases};
  }
  auto [inputs, weights, biases] =
      torchs::convolution_backward(gradient, strided_copy(input, stride), weight, bias, ones,
                                   padding, dilation, transposed, output_padding, groups, wanted);
  if (wanted[0]) {
    const at::Tensor all =
        at::empty(input.sizes(), inputs.options(), input.suggest_memory_format()).zero_();
    strided(all, stride).copy_(inputs);
    inputs = all;
  }
  return {inputs, weights, biases};
}

}  // namespace

bool may_overrun(c10::IntArrayRef weight, c10::IntArrayRef stride, c10::IntArrayRef padding,
                 std::int64_t groups) {
  return groups == 1 && weight.size() > 2 && weight[1] < kLargestBlock &&
         all_are(weight.slice(2), 1) && !all_are(stride, 1) && all_are(padding, 0);
}

void keep_convolutions_safe() {}

bool have_been_made_safe() {
  return made_safe;
}

}  // namespace lockstep::training

TORCH_LIBRARY_IMPL(aten, CPU, library) {
  library.impl("convolution_backward", &lockstep::training::backward);
}
