#pragma once

#include <cstdint>

#include <ATen/core/Tensor.h>

#include "framework/data/dataset.h"

namespace lockstep::data {

/// What the targets of `count` samples are where they are not known: see Dataset::has_targets().
[[nodiscard]] at::Tensor unknown_targets(const TensorType& type, std::int64_t count);

}  // namespace lockstep::data
