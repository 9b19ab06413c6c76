#include "framework/formats/decimal.h"

#include <algorithm>
#include <charconv>
#include <cstddef>
#include <limits>

#include "framework/formats/csv.h"

namespace lockstep::formats {
namespace {

// A number as it is written: its digits with the point, times 10^power.
struct Written {
  std::string_view digits;
  std::int64_t power = 0;

  /// How many digits are before the point, if it is there.
  [[nodiscard]] std::size_t point() const { return std::min(digits.find('.'), digits.size()); }
  [[nodiscard]] std::string_view behind_point() const {
    return digits.substr(std::min(point() + 1, digits.size()));
  }
};

Written written(std::string_view text) {
  Written made{.digits = text.substr(0, text.find_first_of("eE"))};
  if (made.digits.size() == text.size()) return made;
  std::string_view power = text.substr(made.digits.size() + 1);
  if (power.starts_with('+')) power.remove_prefix(1);
  // A finite number that is not zero has a small one; that of zero may be any.
  std::from_chars(power.data(), power.data() + power.size(), made.power);
  return made;
}

}  // namespace

std::optional<Decimal> Decimal::of(std::string_view text) {
  if (!csv_number(text)) return std::nullopt;
  text = trimmed(text);
  Decimal made;
  made.sign_ = 1;
  if (text.starts_with('-')) made.sign_ = -1;
  if (text.starts_with('-') || text.starts_with('+')) text.remove_prefix(1);
  const Written number = written(text);
  made.digits_.append(number.digits.substr(0, number.point())).append(number.behind_point());
  made.exponent_ = number.power + static_cast<std::int64_t>(number.point());
  const std::size_t zeros = std::min(made.digits_.find_first_not_of('0'), made.digits_.size());
  made.digits_.erase(0, zeros);
  made.exponent_ -= static_cast<std::int64_t>(zeros);
  made.digits_.erase(made.digits_.find_last_not_of('0') + 1);
  return made.digits_.empty() ? Decimal() : made;
}

std::strong_ordering Decimal::operator<=>(const Decimal& other) const {
  if (sign_ != other.sign_) return sign_ <=> other.sign_;
  const Decimal& less_far = sign_ < 0 ? other : *this;  // from zero, if this is less
  const Decimal& farther = sign_ < 0 ? *this : other;
  if (exponent_ != other.exponent_) return less_far.exponent_ <=> farther.exponent_;
  return less_far.digits_.compare(farther.digits_) <=> 0;
}

bool is_rough(std::string_view text) {
  const Written number = written(trimmed(text));
  if (number.power <= std::ssize(number.behind_point())) return false;
  constexpr const char* kNotZero = "123456789";
  const std::size_t first = number.digits.find_first_of(kNotZero);
  if (first == std::string_view::npos) return true;
  const auto digits = number.digits.substr(first, number.digits.find_last_of(kNotZero) + 1 - first);
  return std::ssize(digits) - std::ranges::count(digits, '.') <=
         std::numeric_limits<float>::max_digits10;
}

}  // namespace lockstep::formats
