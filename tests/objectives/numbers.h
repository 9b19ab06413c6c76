#pragma once

#include <cstdint>
#include <string_view>
#include <vector>

#include <ATen/core/Tensor.h>
#include <ATen/ops/empty.h>

#include "framework/base/random.h"

namespace lockstep::testing {

/// Random numbers from -3 to 3, in float64.
inline at::Tensor random_values(const Key& key, const std::vector<std::int64_t>& shape) {
  at::Tensor values = at::empty(shape, at::kDouble);
  auto* const numbers = values.data_ptr<double>();
  for (std::int64_t i = 0; i < values.numel(); ++i) {
    const std::uint64_t bits = key.draw(static_cast<std::uint64_t>(i)) >> 11;
    numbers[i] = 6 * static_cast<double>(bits) / static_cast<double>(1ULL << 53) - 3;
  }
  return values;
}

/// Random classes, and in every fourth place on average `ignored`.
inline at::Tensor random_classes(const Key& key, const std::vector<std::int64_t>& shape,
                                 std::int64_t classes, std::int64_t ignored) {
  at::Tensor values = at::empty(shape, at::kLong);
  auto* const numbers = values.data_ptr<std::int64_t>();
  for (std::int64_t i = 0; i < values.numel(); ++i) {
    const std::uint64_t bits = key.draw(static_cast<std::uint64_t>(i)) >> 11;
    const auto number = static_cast<std::int64_t>(bits / 4) % classes;
    numbers[i] = bits % 4 == 0 ? ignored : number;
  }
  return values;
}

}  // namespace lockstep::testing
