#pragma once

#include <cstdint>
#include <span>
#include <string>

#include "framework/data/dataset.h"

namespace lockstep {

/// Whether all values are finite, at the speed of memory. Float64 values without a sum in float64
/// count as not finite.
[[nodiscard]] bool is_finite(const at::Tensor& values);

/// "an input that is nan, at [0, 3]", if an input or a target of this sample, as `epoch` has it, is
/// NaN or infinite; otherwise "". Makes the sample anew.
[[nodiscard]] std::string non_finite_of(const Dataset& data, std::int64_t index,
                                        std::int64_t epoch = kUnaugmented);

/// "sample 7 ('cat/a.png') has an input that is nan, at [0, 3]": the first of these samples that is
/// not finite; "" if all are.
[[nodiscard]] std::string first_non_finite(const Dataset& data,
                                           std::span<const std::int64_t> indices,
                                           std::int64_t epoch = kUnaugmented);

}  // namespace lockstep
