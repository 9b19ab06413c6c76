#pragma once

#include <cmath>

namespace lockstep::data {

/// 2^53: from there on a double is a whole number that stands for its neighbours, too.
inline constexpr double kExactInDouble = 9007199254740992;

/// Whether rounding has moved a number by a half or more, which is worth a warning. Digits behind
/// the point are no measure: 0.1 is always rounded.
template <typename T>
[[nodiscard]] bool is_moved(T number, T rounded) {
  return std::abs(rounded - number) >= T{0.5};
}

}  // namespace lockstep::data
