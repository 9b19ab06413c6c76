#pragma once

#include <concepts>

namespace lockstep {

/// `value` / `divisor`, rounded up, for a `value` >= 0 and a `divisor` > 0.
template <std::integral Number>
[[nodiscard]] constexpr Number ceil_div(Number value, Number divisor) {
  return value / divisor + (value % divisor == 0 ? 0 : 1);
}

/// The least multiple of `multiple` that is at least `value`, under the same conditions.
template <std::integral Number>
[[nodiscard]] constexpr Number round_up(Number value, Number multiple) {
  return ceil_div(value, multiple) * multiple;
}

}  // namespace lockstep
