#pragma once

#include <cmath>
#include <concepts>
#include <cstdint>
#include <span>
#include <string_view>
#include <vector>

namespace lockstep {

/// True while a data set makes a batch in this thread: draws then count as the data set's.
inline constinit thread_local bool is_in_data_set = false;

/// Randomness as a pure function of its use. A key starts from the seed and is folded with all that
/// tells this use from others (replica, step, layer path); the same folds give the same numbers on
/// every machine, thread and run. There is no generator with a state to share or save.
///
///   Key(seed).fold("sampler").fold(epoch)
///
/// Mixing is SplitMix64's finalizer (Steele, Lea, Flood: Fast Splittable Pseudorandom Number
/// Generators, 2014).
class Key {
 public:
  explicit Key(std::uint64_t seed) noexcept : state_(mix(seed)) {}

  /// Returns the key for one of many uses of this one.
  [[nodiscard]] Key fold(std::integral auto index) const noexcept {
    Key folded = *this;
    folded.state_ = mix(state_ ^ mix(static_cast<std::uint64_t>(index)));
    return folded;
  }
  [[nodiscard]] Key fold(std::string_view name) const noexcept;
  /// Folds by one index after the other.
  [[nodiscard]] Key fold(std::span<const int> indices) const noexcept;

  /// Returns the key's 64 random bits, for example as the seed of a generator.
  [[nodiscard]] std::uint64_t bits() const noexcept { return state_; }

  /// Returns number `index` of the key's sequence: 64 random bits. Cheaper than many fold()s.
  [[nodiscard]] std::uint64_t draw(std::uint64_t index) const noexcept {
    return mix(state_ + index * kStep);
  }
  /// Returns draw(index) as a number in [0, 1): its upper `bits` bits, at most a double's 53.
  [[nodiscard]] double uniform(std::uint64_t index, int bits = 53) const noexcept {
    return std::ldexp(static_cast<double>(draw(index) >> (64 - bits)), -bits);
  }
  /// Returns number `index` of the key's sequence of standard normal numbers.
  [[nodiscard]] double normal(std::uint64_t index) const noexcept;

 private:
  static constexpr std::uint64_t kStep = 0x9e3779b97f4a7c15U;
  static std::uint64_t mix(std::uint64_t value) noexcept {
    value += kStep;
    value = (value ^ (value >> 30)) * 0xbf58476d1ce4e5b9U;
    value = (value ^ (value >> 27)) * 0x94d049bb133111ebU;
    return value ^ (value >> 31);
  }

  std::uint64_t state_;
};

/// Puts `numbers` into an order that is uniform over all orders and depends on nothing but `key`
/// and how many there are (Fisher-Yates).
void shuffle(const Key& key, std::span<std::int64_t> numbers);
void shuffle(const Key& key, std::span<std::uint32_t> numbers);

/// Returns the numbers 0 … count-1 as shuffle() orders them.
[[nodiscard]] std::vector<std::int64_t> permutation(const Key& key, std::int64_t count);

}  // namespace lockstep
