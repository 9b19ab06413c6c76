#pragma once

#include <cmath>
#include <compare>
#include <cstdint>
#include <optional>
#include <string>
#include <string_view>

namespace lockstep::formats {

/// A number as its digits say, however many: 9007199254740993 is not 9007199254740992, as it would
/// be in a double, and 1, 1.0 and 10e-1 are one. In the order of numbers.
class Decimal {
 public:
  /// Of what csv_number() takes; none for other texts.
  [[nodiscard]] static std::optional<Decimal> of(std::string_view text);

  [[nodiscard]] std::strong_ordering operator<=>(const Decimal& other) const;
  bool operator==(const Decimal& other) const = default;

 private:
  // The value is 0.DIGITS times 10^exponent. No digits: it is zero, and the rest, too.
  int sign_ = 0;  // -1, 0, 1
  std::int64_t exponent_ = 0;
  std::string digits_;  // neither begin nor end with a zero
};

/// Whether a text that csv_number() takes gives its number roughly, as 1e20 and 6.02214076e23: in
/// at most 9 digits other than zeros at the ends, and not all of those before the point. A float32
/// has no more.
[[nodiscard]] bool is_rough(std::string_view text);

/// 2^53: from there on a double is a whole number that stands for its neighbours, too.
inline constexpr double kExactInDouble = 9007199254740992;

/// Whether rounding has moved a number by a half or more, which is worth a warning. Digits behind
/// the point are no measure: 0.1 is always rounded.
template <typename T>
[[nodiscard]] bool is_moved(T number, T rounded) {
  return std::abs(rounded - number) >= T{0.5};
}

}  // namespace lockstep::formats
