#pragma once

#include <cmath>
#include <cstdint>
#include <vector>

#include <ATen/core/Tensor.h>
#include <ATen/ops/empty.h>
#include <ATen/ops/zeros.h>

#include "framework/base/random.h"
#include "framework/optim/optimizer.h"

namespace lockstep::testing {

/// Values in [-1, 1) that depend on `key` alone.
[[nodiscard]] inline at::Tensor random_values(std::int64_t count, const Key& key,
                                              at::ScalarType dtype = at::kFloat) {
  at::Tensor tensor = at::empty({count}, at::kDouble);
  auto* values = tensor.data_ptr<double>();
  for (std::int64_t i = 0; i < count; ++i) {
    const std::uint64_t bits = key.fold(static_cast<std::uint64_t>(i)).bits();
    values[i] = std::ldexp(static_cast<double>(bits >> 11), -52) - 1;
  }
  return tensor.to(dtype);
}

/// A slice that is all of `parameter`, with the state that the optimizer starts with.
[[nodiscard]] inline OptimizerSlice whole(const Optimizer& optimizer, const at::Tensor& parameter,
                                          const at::Tensor& gradient) {
  OptimizerSlice slice{.parameter = parameter, .gradient = gradient, .state = {}, .rounded = {}};
  for (std::size_t i = 0; i < optimizer.state_tensors(); ++i) {
    slice.state.push_back(at::zeros({parameter.numel()}, parameter.options()));
  }
  return slice;
}

/// Elements `begin` to `end` of a slice, in the same memory.
[[nodiscard]] inline OptimizerSlice part_of(const OptimizerSlice& slice, std::int64_t begin,
                                            std::int64_t end) {
  const auto cut = [&](const at::Tensor& tensor) {
    return tensor.defined() ? tensor.slice(0, begin, end) : tensor;
  };
  OptimizerSlice part{.parameter = cut(slice.parameter),
                      .gradient = cut(slice.gradient),
                      .state = {},
                      .rounded = cut(slice.rounded)};
  for (const at::Tensor& state : slice.state) part.state.push_back(cut(state));
  return part;
}

}  // namespace lockstep::testing
