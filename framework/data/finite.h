#pragma once

#include <cstdint>
#include <span>
#include <string>

#include "framework/data/dataset.h"

namespace lockstep {

/// Names the first of these samples, as `epoch` has it, with an input or a target that is NaN or
/// infinite: "sample 7 ('cat/a.png') has an input that is nan, at [0, 3]". "" if there is none.
/// Targets that are not known do not count. Makes each sample anew.
[[nodiscard]] std::string first_non_finite(const Dataset& data,
                                           std::span<const std::int64_t> indices,
                                           std::int64_t epoch = kUnaugmented);

}  // namespace lockstep
