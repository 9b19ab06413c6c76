#pragma once

#include <string>

#include <ATen/core/Tensor.h>

namespace lockstep {

/// A picture (1 or 3, height, width), its values from 0 to 1, as a data URI for pages: a PNG of at
/// most 64 by 64 pixels, each the mean of those that it stands for.
[[nodiscard]] std::string picture_uri(at::Tensor picture);

}  // namespace lockstep
