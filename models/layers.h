#pragma once

#include <cstdint>
#include <string_view>
#include <vector>

#include <ATen/core/Tensor.h>

#include "framework/base/random.h"

namespace lockstep {

// Under DeferredValues (model.h) parameters are made without values, and get them later.

/// A float32 tensor of `sizes` with values uniform in [-bound, bound), a pure function of its
/// arguments: the same bits in any thread, whatever else has been drawn.
[[nodiscard]] at::Tensor uniform(const std::vector<std::int64_t>& sizes, double bound,
                                 const Key& key);

/// A float32 tensor of `sizes` with one value.
[[nodiscard]] at::Tensor constant(const std::vector<std::int64_t>& sizes, double value);

/// Throws a ValueError that names `model` unless `inputs` are (samples, features).
void check_inputs(std::string_view model, const at::Tensor& inputs, std::int64_t features);

}  // namespace lockstep
