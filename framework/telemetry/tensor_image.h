#pragma once

#include <string>

#include <ATen/core/Tensor.h>

#include "framework/formats/image.h"

namespace lockstep::telemetry {

/// A picture (1 or 3, height, width) or (height, width), bytes or floating-point values from 0 to
/// 1: what is outside counts as the nearer end, NaN as 0. ValueError, which calls it `what`, for
/// other shapes and types.
[[nodiscard]] formats::Image image_of(const std::string& what, at::Tensor values);

}  // namespace lockstep::telemetry
