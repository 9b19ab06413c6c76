#include "framework/training/safe_convolutions.h"

#include <algorithm>
#include <array>
#include <cstddef>
#include <functional>
#include <limits>
#include <optional>
#include <tuple>
#include <utility>
#include <vector>

#include <ATen/core/Tensor.h>
#include <ATen/ops/constant_pad_nd.h>
#include <ATen/ops/convolution_backward_compositeexplicitautograd_dispatch.h>
#include <ATen/ops/convolution_compositeexplicitautograd_dispatch.h>
#include <ATen/ops/empty.h>
#include <c10/util/Optional.h>
#include <torch/library.h>
#include <torch/version.h>

#include "framework/training/float32_sums.h"

namespace lockstep::training {
namespace {

namespace torchs = at::compositeexplicitautograd;  // LibTorch's own ways, for all devices

using Sizes = std::vector<std::int64_t>;

// How many floats an AVX-512 register has. oneDNN's blocks of channels are no larger.
constexpr std::int64_t kLargestBlock = 16;

bool all_are(c10::IntArrayRef values, std::int64_t value) {
  return std::all_of(values.begin(), values.end(), [&](std::int64_t one) { return one == value; });
}

// LibTorch takes one value for all dimensions, too.
std::int64_t last(c10::IntArrayRef values) {
  return values.back();
}

Sizes for_all(c10::IntArrayRef values, std::size_t dimensions) {
  return values.size() == 1 ? Sizes(dimensions, values[0]) : values.vec();
}

bool is_pointwise(const ConvolutionShape& shape) {
  return all_are(shape.weight.slice(2), 1);
}

// The columns that a kernel spans.
std::int64_t kernel_columns(const ConvolutionShape& shape) {
  return last(shape.dilation) * (shape.weight.back() - 1) + 1;
}

bool has_one_result_column(const ConvolutionShape& shape) {
  const std::int64_t free = shape.images.back() + 2 * last(shape.padding) - kernel_columns(shape);
  return free >= 0 && free < last(shape.stride);
}

// Whether LibTorch has no error for it.
bool is_convolution(const ConvolutionShape& shape) {
  const std::size_t dimensions = shape.weight.size();
  const auto has_size = [&](c10::IntArrayRef values) {
    return values.size() == 1 || values.size() == dimensions - 2;
  };
  return dimensions > 2 && shape.images.size() == dimensions && has_size(shape.stride) &&
         has_size(shape.padding) && has_size(shape.dilation) &&
         std::ranges::all_of(shape.padding, [](std::int64_t one) { return one >= 0; });
}

bool has_unsafe_stride(const ConvolutionShape& shape, bool backward) {
  if (!is_convolution(shape) || all_are(shape.stride, 1)) return false;
  if (last(shape.stride) > 1 && has_one_result_column(shape)) return true;
  if (!is_pointwise(shape)) return false;
  const bool is_narrow = shape.groups == 1 && shape.weight[1] < kLargestBlock;
  return !all_are(shape.padding, 0) || (backward && is_narrow);
}

// Whether a result meets nothing but padding in some dimension.
bool has_results_of_padding(const ConvolutionShape& shape) {
  if (!is_convolution(shape)) return false;
  const std::size_t dimensions = shape.weight.size() - 2;
  const Sizes padding = for_all(shape.padding, dimensions);
  const Sizes dilation = for_all(shape.dilation, dimensions);
  for (std::size_t i = 0; i < dimensions; ++i) {
    if (padding[i] > dilation[i] * (shape.weight[i + 2] - 1)) return true;
  }
  return false;
}

// In which gradients, of inputs and of weights, count.
bool has_unsafe_bfloat16(const ConvolutionShape& shape, bool inputs, bool weights) {
  if (shape.type != c10::ScalarType::BFloat16 || shape.weight.size() < 3) return false;
  if (has_results_of_padding(shape) || !has_bfloat16_kernels()) return true;
  if (TORCH_VERSION_MAJOR > 1) return false;
  const bool is_narrow = shape.weight[1] < kLargestBlock;
  return shape.transposed || (weights && !all_are(shape.dilation, 1)) ||
         (inputs && is_pointwise(shape) && is_narrow);
}

// Of images (batch, channels, rows, columns), every stride-th row and column.
at::Tensor strided(at::Tensor images, const Sizes& stride) {
  for (std::size_t i = 0; i < stride.size(); ++i) {
    images = images.slice(static_cast<std::int64_t>(i) + 2, 0,
                          std::numeric_limits<std::int64_t>::max(), stride[i]);
  }
  return images;
}

// The tensor with the strides of its layout also in dimensions of size one, where a slice leaves
// others. LibTorch takes these for contiguous and tells oneDNN of them, which then computes wrong
// numbers.
at::Tensor with_strides_of_layout(const at::Tensor& tensor) {
  if (!tensor.defined() || tensor.dim() < 4 || std::ranges::count(tensor.sizes(), 1) == 0) {
    return tensor;
  }
  const auto format =
      tensor.dim() == 4 ? at::MemoryFormat::ChannelsLast : at::MemoryFormat::ChannelsLast3d;
  const bool can_be_last = tensor.dim() < 6 && tensor.is_contiguous(format);
  const bool is_last =
      can_be_last && (!tensor.is_contiguous() || tensor.suggest_memory_format() == format);
  if (!is_last && !tensor.is_contiguous()) return tensor;
  Sizes strides(tensor.sizes().size());
  std::int64_t next = is_last ? std::max<std::int64_t>(tensor.size(1), 1) : 1;
  for (std::size_t i = strides.size(); i-- > 0;) {
    if (is_last && i == 1) continue;
    strides[i] = next;
    next *= std::max<std::int64_t>(tensor.sizes()[i], 1);
  }
  if (is_last) strides[1] = 1;
  return tensor.strides() == at::IntArrayRef(strides) ? tensor
                                                      : tensor.as_strided(tensor.sizes(), strides);
}

// The same convolution of other images, without the stride that is unsafe.
class SafeWay {
 public:
  explicit SafeWay(const ConvolutionShape& shape) {
    const std::size_t dimensions = shape.weight.size() - 2;
    stride_ = for_all(shape.stride, dimensions);
    padding_ = for_all(shape.padding, dimensions);
    taken_ = Sizes(dimensions, 1);
    if (is_pointwise(shape)) {
      for (std::size_t i = dimensions; i-- > 0;) added_.insert(added_.end(), 2, padding_[i]);
      taken_ = std::exchange(stride_, Sizes(dimensions, 1));
      padding_ = Sizes(dimensions, 0);
    } else {
      // A kernel's span of padding is as good as more.
      const std::int64_t left = std::min(std::exchange(padding_.back(), 0), kernel_columns(shape));
      added_ = {left, kernel_columns(shape) - left - shape.images.back()};
      stride_.back() = 1;
    }
  }

  [[nodiscard]] const Sizes& stride() const { return stride_; }
  [[nodiscard]] const Sizes& padding() const { return padding_; }
  // Where the images are a result, their copies are of the size that the kernel reaches.
  [[nodiscard]] Sizes output_padding(at::IntArrayRef output_padding) const {
    Sizes left = for_all(output_padding, stride_.size());
    std::fill(left.end() - static_cast<std::ptrdiff_t>(added_.size() / 2), left.end(), 0);
    return left;
  }

  // What the kernel slides over then: copies, in the images' layout.
  [[nodiscard]] at::Tensor images(const at::Tensor& images) const {
    return with_strides_of_layout(
        strided(padded(images, added_), taken_).contiguous(images.suggest_memory_format()));
  }

  // The gradient of `images` by that of their copies.
  [[nodiscard]] at::Tensor gradient(at::Tensor copies, const at::Tensor& images) const {
    if (!all_are(taken_, 1)) {
      const at::Tensor all =
          at::empty(padded_sizes(images), copies.options(), images.suggest_memory_format()).zero_();
      strided(all, taken_).copy_(copies);
      copies = all;
    }
    Sizes removed = added_;
    for (std::int64_t& pixels : removed) pixels = -pixels;
    return padded(copies, removed);
  }

 private:
  static at::Tensor padded(const at::Tensor& images, const Sizes& added) {
    return all_are(added, 0) ? images : at::constant_pad_nd(images, added);
  }

  [[nodiscard]] Sizes padded_sizes(const at::Tensor& images) const {
    Sizes sizes = images.sizes().vec();
    for (std::size_t i = 0; i < added_.size(); ++i) sizes[sizes.size() - 1 - i / 2] += added_[i];
    return sizes;
  }

  Sizes stride_;
  Sizes padding_;
  Sizes added_;  // pixels before and behind, in the last dimensions, the last first; or cut off
  Sizes taken_;  // of those, every so many
};

// Whether a transposed convolution adds a stride or more, as it may where it has dilation.
bool adds_a_stride(at::IntArrayRef output_padding, at::IntArrayRef stride) {
  const Sizes added = for_all(output_padding, std::max(output_padding.size(), stride.size()));
  const Sizes steps = for_all(stride, added.size());
  return !std::equal(added.begin(), added.end(), steps.begin(), std::less<>());
}

std::optional<SafeWay> safe_way(const ConvolutionShape& shape, bool backward) {
  const bool is_empty = std::ranges::count(shape.images, 0) > 0;
  if (is_empty || !has_unsafe_stride(shape, backward)) return std::nullopt;
  return SafeWay(shape);
}

at::Tensor as_bfloat16(const at::Tensor& tensor) {
  return tensor.defined() ? tensor.to(at::kBFloat16) : tensor;
}

at::Tensor forward(const at::Tensor& any_input, const at::Tensor& any_weight,
                   const c10::optional<at::Tensor>& bias, at::IntArrayRef stride,
                   at::IntArrayRef padding, at::IntArrayRef dilation, bool transposed,
                   at::IntArrayRef output_padding, std::int64_t groups) {
  const at::Tensor input = with_strides_of_layout(any_input);
  const at::Tensor weight = with_strides_of_layout(any_weight);
  const ConvolutionShape shape{input.sizes(), weight.sizes(), stride,     padding,
                               dilation,      groups,         transposed, input.scalar_type()};
  const bool has_bias = bias && bias->defined();
  const bool is_of_one_type = weight.scalar_type() == input.scalar_type() &&
                              (!has_bias || bias->scalar_type() == input.scalar_type());
  if (has_unsafe_bfloat16(shape, false, false) && is_of_one_type) {
    return forward(input.to(at::kFloat), weight.to(at::kFloat),
                   has_bias ? bias->to(at::kFloat) : at::Tensor(), stride, padding, dilation,
                   transposed, output_padding, groups)
        .to(at::kBFloat16);
  }
  const auto way = transposed ? std::nullopt : safe_way(shape, /*backward=*/false);
  return torchs::convolution(way ? way->images(input) : input, weight, bias,
                             way ? way->stride() : stride, way ? way->padding() : padding, dilation,
                             transposed, output_padding, groups);
}

std::tuple<at::Tensor, at::Tensor, at::Tensor> backward(
    const at::Tensor& any_gradient, const at::Tensor& any_input, const at::Tensor& any_weight,
    at::OptionalIntArrayRef bias, at::IntArrayRef stride, at::IntArrayRef padding,
    at::IntArrayRef dilation, bool transposed, at::IntArrayRef output_padding, std::int64_t groups,
    std::array<bool, 3> wanted) {
  const at::Tensor gradient = with_strides_of_layout(any_gradient);
  const at::Tensor input = with_strides_of_layout(any_input);
  const at::Tensor weight = with_strides_of_layout(any_weight);
  const at::Tensor& images = transposed ? gradient : input;
  const ConvolutionShape shape{images.sizes(), weight.sizes(), stride,     padding,
                               dilation,       groups,         transposed, input.scalar_type()};
  if (has_unsafe_bfloat16(shape, wanted[0], wanted[1])) {
    const auto [inputs, weights, biases] =
        backward(gradient.to(at::kFloat), input.to(at::kFloat), weight.to(at::kFloat), bias, stride,
                 padding, dilation, transposed, output_padding, groups, wanted);
    return {as_bfloat16(inputs), as_bfloat16(weights), as_bfloat16(biases)};
  }
  const auto way = transposed && adds_a_stride(output_padding, stride)
                       ? std::nullopt
                       : safe_way(shape, /*backward=*/true);
  if (way && transposed) {
    auto [inputs, weights, biases] = torchs::convolution_backward(
        way->images(gradient), input, weight, bias, way->stride(), way->padding(), dilation,
        transposed, way->output_padding(output_padding), groups, {wanted[0], wanted[1], false});
    if (wanted[2]) biases = gradient.transpose(0, 1).flatten(1).sum(1);
    return {inputs, weights, biases};
  }
  auto [inputs, weights, biases] = torchs::convolution_backward(
      gradient, way ? way->images(input) : input, weight, bias, way ? way->stride() : stride,
      way ? way->padding() : padding, dilation, transposed, output_padding, groups, wanted);
  if (way && wanted[0]) inputs = way->gradient(inputs, input);
  return {inputs, weights, biases};
}

}  // namespace

bool is_unsafe(const ConvolutionShape& shape, bool backward) {
  return has_unsafe_bfloat16(shape, backward, backward) || has_unsafe_stride(shape, backward);
}

void keep_convolutions_safe() {
  keep_sums_in_float32();
}

}  // namespace lockstep::training

TORCH_LIBRARY_IMPL(aten, CPU, library) {
  library.impl("convolution", &lockstep::training::forward);
  library.impl("convolution_backward", &lockstep::training::backward);
}
