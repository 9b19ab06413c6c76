#pragma once

#include <cmath>
#include <string>

namespace lockstep::data {

/// 2^53: from there on a double is a whole number that stands for its neighbours, too.
inline constexpr double kExactInDouble = 9007199254740992;

/// Whether rounding has changed the digits before a number's point, which is worth a warning. Those
/// behind it are no measure: 0.1 is always rounded.
template <typename T>
[[nodiscard]] bool loses_digits(T number, T rounded) {
  return std::abs(rounded - number) >= T{0.5};
}

/// The shortest text without an exponent that reads back the same.
[[nodiscard]] std::string fixed_text(double number);

}  // namespace lockstep::data
