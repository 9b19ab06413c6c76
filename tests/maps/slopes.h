#pragma once

#include <cstdint>
#include <functional>
#include <string>
#include <vector>

#include <ATen/core/Tensor.h>

// Checks of derivatives: against finite differences, and against the same mathematics on one
// replica.
namespace lockstep::testing {

constexpr std::uint64_t kSeed = 20250312;

using at::Tensor;
using Tensors = std::vector<Tensor>;
using Loss = std::function<Tensor(const Tensors&)>;

/// Returns normal numbers in float64, the same for every `use`.
Tensor normal(const std::string& use, at::IntArrayRef sizes);

/// Returns a number of `result` whose first and second derivatives are different everywhere.
Tensor weighed(const Tensor& result);

/// Checks grad of `loss` by its leaves at x, along a fixed direction, against finite differences.
void check_slope(const Loss& loss, const Tensors& x);

void check_same(const Tensors& found, const Tensors& expected);

/// Checks value, first and second derivative against finite differences, and against `serial`,
/// which is the same mathematics on one replica.
void check_loss(const Loss& loss, const Loss& serial, const Tensors& x);

}  // namespace lockstep::testing
