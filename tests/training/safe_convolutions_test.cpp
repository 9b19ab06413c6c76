#include "framework/training/safe_convolutions.h"

#include <cstddef>
#include <cstdint>
#include <random>
#include <vector>

#include <ATen/Parallel.h>
#include <ATen/TensorOperators.h>
#include <ATen/ops/conv2d.h>
#include <ATen/ops/convolution.h>
#include <ATen/ops/ones.h>
#include <ATen/ops/randint.h>
#include <torch/csrc/autograd/autograd.h>

#include "tests/catch.h"
#include "tests/support/settings.h"

using namespace lockstep;
using lockstep::testing::seed;

namespace {

using Sizes = std::vector<std::int64_t>;

// A convolution of two dimensions, forward and backward.
struct ConvolutionCase {
  at::Tensor input, weight, bias;
  Sizes stride, padding, dilation;
  std::int64_t groups;
  bool transposed;

  [[nodiscard]] at::Tensor result(const at::Tensor& x, const at::Tensor& w,
                                  const at::Tensor& b) const {
    return at::convolution(x, w, b, stride, padding, dilation, transposed, {0, 0}, groups);
  }

  // The result, and the gradients of all three by gradients that are whole numbers.
  [[nodiscard]] std::vector<at::Tensor> computed(at::ScalarType type) const {
    std::vector<at::Tensor> leaves;
    for (const at::Tensor& each : {input, weight, bias}) {
      leaves.push_back(each.to(type).detach().requires_grad_());
    }
    const at::Tensor y = result(leaves[0], leaves[1], leaves[2]);
    const at::Tensor gradient = y.detach().to(at::kDouble).remainder(5).sub(2).to(type);
    auto all = torch::autograd::grad({y}, leaves, {gradient});
    all.push_back(y.detach());
    return all;
  }
};

bool is_unsafe(const ConvolutionCase& c, at::ScalarType type) {
  const Sizes images = (c.transposed ? c.result(c.input, c.weight, c.bias) : c.input).sizes().vec();
  return training::is_unsafe({.images = images,
                              .weight = c.weight.sizes(),
                              .stride = c.stride,
                              .padding = c.padding,
                              .dilation = c.dilation,
                              .groups = c.groups,
                              .transposed = c.transposed,
                              .type = type},
                             /*backward=*/true);
}

// Small whole numbers, of which most sums are exact in each type.
at::Tensor numbers(at::IntArrayRef sizes, bool is_last = false) {
  const at::Tensor drawn = at::randint(-2, 3, sizes, at::kDouble);
  return is_last ? drawn.contiguous(at::MemoryFormat::ChannelsLast) : drawn;
}

}  // namespace

TEST_CASE("convolutions of unsafe shapes have float64's results and gradients") {
  training::keep_convolutions_safe();
  std::mt19937_64 random(seed());
  at::manual_seed(seed());
  const auto draw = [&](std::int64_t from, std::int64_t to) {
    return std::uniform_int_distribution<std::int64_t>(from, to)(random);
  };
  const int threads = at::get_num_threads();
  int unsafe = 0;
  while (unsafe < 100) {
    const std::int64_t groups = draw(1, 2);
    const bool transposed = draw(0, 3) == 0;
    const bool is_pointwise = draw(0, 1) != 0;
    const Sizes kernel{is_pointwise ? 1 : draw(1, 3), is_pointwise ? 1 : draw(1, 5)};
    const Sizes channels{groups * draw(1, 20), groups * draw(1, 20)};
    const ConvolutionCase c{
        .input = numbers({draw(1, 4), channels[0], draw(5, 9), draw(1, 9)}, draw(0, 1) != 0),
        .weight = numbers({transposed ? channels[0] : channels[1],
                           (transposed ? channels[1] : channels[0]) / groups, kernel[0], kernel[1]},
                          draw(0, 1) != 0),
        .bias = numbers({channels[1]}),
        .stride = {draw(1, 3), draw(1, 9)},
        .padding = Sizes(2, draw(0, transposed ? 0 : 2)),
        .dilation = Sizes(2, draw(1, 2)),
        .groups = groups,
        .transposed = transposed};
    const bool has_results = c.input.size(2) + 2 * c.padding[0] > c.dilation[0] * (kernel[0] - 1) &&
                             c.input.size(3) + 2 * c.padding[0] > c.dilation[0] * (kernel[1] - 1);
    const at::ScalarType type = draw(0, 1) != 0 ? at::kBFloat16 : at::kFloat;
    if (!has_results || !is_unsafe(c, type)) continue;
    ++unsafe;
    at::set_num_threads(static_cast<int>(draw(1, 2)));
    INFO("seed " << seed() << ", case " << unsafe << ": " << c10::toString(type) << ", input "
                 << c.input.sizes() << ", weight " << c.weight.sizes() << ", stride "
                 << at::IntArrayRef(c.stride) << (transposed ? ", transposed" : ""));
    const auto expected = c.computed(at::kDouble);
    // A gradient follows from the result, which must be the same whole number for it.
    const bool is_exact = expected.back().abs().max().item<double>() <= 256;
    const auto found = c.computed(type);
    const double rounding = type == at::kBFloat16 ? 0x1p-8 : 0x1p-20;
    for (std::size_t i = is_exact ? 0 : 3; i < found.size(); ++i) {
      const at::Tensor difference = (found[i].to(at::kDouble) - expected[i]).abs();
      CHECK((difference - 2 * rounding * expected[i].abs()).max().item<double>() <= 0);
    }
  }
  at::set_num_threads(threads);
}

TEST_CASE("dimensions of size one may have any stride, as slices leave them") {
  training::keep_convolutions_safe();
  const at::Tensor images = numbers({3, 14, 9, 1}).to(at::kFloat);
  const at::Tensor weight = numbers({18, 7, 3, 1}).to(at::kFloat);
  const auto sliced = [](const at::Tensor& tensor) {
    const at::Tensor last = tensor.contiguous(at::MemoryFormat::ChannelsLast);
    Sizes strides = last.strides().vec();
    strides[3] = 186;
    return last.as_strided(tensor.sizes(), strides);
  };
  const Sizes ones{1, 1};
  CHECK(at::conv2d(sliced(images), sliced(weight), {}, ones, ones, ones, 2)
            .equal(at::conv2d(images, weight, {}, ones, ones, ones, 2)));
}

TEST_CASE("a convolution that can't be is LibTorch's error") {
  training::keep_convolutions_safe();
  const at::Tensor weight = at::ones({8, 16, 1, 1});
  CHECK_THROWS_WITH(
      at::convolution(at::ones({5, 16, 5, 5}), weight, {}, {2}, {-1}, {1, 1}, false, {0}, 1),
      ContainsSubstring("negative padding"));
}
