#include "framework/base/exact_sum.h"

#include <cmath>
#include <limits>

#include "framework/base/errors.h"
#include "framework/base/text.h"

namespace lockstep {

void ExactSum::add_special(double value) {
  if (value < 0) throw ValueError(str("ExactSum: values are at least 0, not ", value));
  if (value == 0) return;  // -0
  ++limbs_[std::isnan(value) ? kNans : kInfinities];
}

double ExactSum::value() const {
  if (limbs_[kNans] != 0) return std::numeric_limits<double>::quiet_NaN();
  if (limbs_[kInfinities] != 0) return std::numeric_limits<double>::infinity();

  // Digits of 32 bits: a limb's higher bits are carried to the next digit.
  std::array<std::uint64_t, kLimbs> digits{};
  std::uint64_t carry = 0;
  std::size_t top = 0;
  for (std::size_t i = 0; i < kLimbs; ++i) {
    const std::uint64_t sum = carry + (i < kInfinities ? static_cast<std::uint64_t>(limbs_[i]) : 0);
    digits[i] = sum & 0xffffffffU;
    carry = sum >> 32;
    if (digits[i] != 0) top = i;
  }
  if (top < 2) return std::ldexp(static_cast<double>(digits[1] << 32 | digits[0]), -1074);

  // The 64 bits from the highest set bit on; the last one is also set if any bit below is. The
  // conversion then rounds as if it had all bits.
  const int zeros = std::countl_zero(digits[top]) - 32;
  std::uint64_t bits = digits[top] << 32 | digits[top - 1];
  std::uint64_t rest = digits[top - 2] << zeros;
  bits = (bits << zeros) | (rest >> 32);
  rest &= 0xffffffffU;
  for (std::size_t i = 0; i + 2 < top; ++i) rest |= digits[i];
  if (rest != 0) bits |= 1;
  return std::ldexp(static_cast<double>(bits), static_cast<int>(top - 1) * 32 - zeros - 1074);
}

}  // namespace lockstep
