#include "framework/formats/decimal.h"

#include <algorithm>
#include <charconv>
#include <cstddef>

#include "framework/formats/csv.h"

namespace lockstep::formats {

std::optional<Decimal> Decimal::of(std::string_view text) {
  if (!csv_number(text)) return std::nullopt;
  text = trimmed(text);
  Decimal made;
  made.sign_ = 1;
  if (text.starts_with('-')) made.sign_ = -1;
  if (text.starts_with('-') || text.starts_with('+')) text.remove_prefix(1);
  if (const std::size_t mark = text.find_first_of("eE"); mark != std::string_view::npos) {
    std::string_view power = text.substr(mark + 1);
    if (power.starts_with('+')) power.remove_prefix(1);
    // A finite number that is not zero has a small one; that of zero may be any.
    std::from_chars(power.data(), power.data() + power.size(), made.exponent_);
    text = text.substr(0, mark);
  }
  const std::size_t point = std::min(text.find('.'), text.size());
  made.digits_.append(text.substr(0, point));
  made.exponent_ += static_cast<std::int64_t>(point);
  if (point < text.size()) made.digits_.append(text.substr(point + 1));
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

}  // namespace lockstep::formats
