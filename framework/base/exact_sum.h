#pragma once

#include <array>
#include <bit>
#include <cstddef>
#include <cstdint>
#include <span>

namespace lockstep {

/// An exact sum of float64 values that are at least 0, kept as a fixed-point number of 2098 bits.
/// Its value does not depend on the order of adding. To add partial sums, add their limbs as int64
/// (psum). The sum holds up to 2^31 values in all.
class ExactSum {
 public:
  static constexpr std::size_t kLimbs = 68;

  /// Adds `value`. Infinities and NaNs are counted, and decide value(). Throws ValueError for a
  /// value below 0.
  void add(double value) {
    const auto bits = std::bit_cast<std::uint64_t>(value);
    if (bits >= kInfinity) return add_special(value);
    // The value is mantissa * 2^(place - 1074).
    const std::uint64_t exponent = bits >> 52;
    const std::uint64_t mantissa = (bits & (kHidden - 1)) | (exponent == 0 ? 0 : kHidden);
    const std::uint64_t place = exponent == 0 ? 0 : exponent - 1;
    const std::uint64_t shift = place % 32;
    const std::uint64_t low = (mantissa & 0xffffffffU) << shift;
    const std::uint64_t high = ((mantissa >> 32) << shift) + (low >> 32);
    std::int64_t* const limb = limbs_.data() + place / 32;
    limb[0] += static_cast<std::int64_t>(low & 0xffffffffU);
    limb[1] += static_cast<std::int64_t>(high & 0xffffffffU);
    limb[2] += static_cast<std::int64_t>(high >> 32);
  }

  /// The parts of the sum: limb i counts multiples of 2^(32 i - 1074); the last two count
  /// infinities and NaNs. To add two sums, add their limbs one by one.
  [[nodiscard]] std::span<std::int64_t> limbs() { return limbs_; }
  [[nodiscard]] std::span<const std::int64_t> limbs() const { return limbs_; }

  /// Returns the float64 nearest to the sum, ties to even; infinity if the sum is too large or a
  /// value was infinite, NaN if a value was NaN.
  [[nodiscard]] double value() const;

 private:
  static constexpr std::uint64_t kHidden = std::uint64_t{1} << 52;
  static constexpr std::uint64_t kInfinity = std::uint64_t{0x7ff} << 52;
  static constexpr std::size_t kInfinities = kLimbs - 2;
  static constexpr std::size_t kNans = kLimbs - 1;

  void add_special(double value);

  std::array<std::int64_t, kLimbs> limbs_{};
};

}  // namespace lockstep
