#include "framework/base/random.h"

#include <numbers>
#include <random>
#include <utility>

#include "framework/base/range.h"

namespace lockstep {
namespace {

// Draws from [0, bound): rejects draws below 2^64 mod bound, so that no value is favoured.
std::uint64_t uniform_below(std::mt19937_64& generator, std::uint64_t bound) {
  const std::uint64_t rejected = (0 - bound) % bound;
  std::uint64_t draw = generator();
  while (draw < rejected) draw = generator();
  return draw % bound;
}

template <typename Number>
void shuffle_numbers(const Key& key, std::span<Number> numbers) {
  // The standard fixes every output of this generator, but not those of std::shuffle.
  std::mt19937_64 generator(key.bits());
  for (std::size_t last = numbers.size(); last > 1; --last) {
    std::swap(numbers[last - 1], numbers[uniform_below(generator, last)]);
  }
}

}  // namespace

// By Box and Muller (1958): two numbers of two draws.
double Key::normal(std::uint64_t index) const noexcept {
  const std::uint64_t first = index / 2 * 2;
  const double radius = std::sqrt(-2 * std::log(uniform(first) + 0x1p-53));  // never of 0
  const double angle = 2 * std::numbers::pi * uniform(first + 1);
  return radius * (index % 2 == 0 ? std::cos(angle) : std::sin(angle));
}

Key Key::fold(std::span<const int> indices) const noexcept {
  Key folded = *this;
  for (const int index : indices) folded = folded.fold(index);
  return folded;
}

Key Key::fold(std::string_view name) const noexcept {
  // The length first: fold("ab") then differs from fold("a") with any byte after it.
  Key folded = fold(~static_cast<std::uint64_t>(name.size()));
  for (const char letter : name) {
    folded.state_ = mix(folded.state_ ^ static_cast<unsigned char>(letter));
  }
  return folded;
}

void shuffle(const Key& key, std::span<std::int64_t> numbers) {
  shuffle_numbers(key, numbers);
}

void shuffle(const Key& key, std::span<std::uint32_t> numbers) {
  shuffle_numbers(key, numbers);
}

std::vector<std::int64_t> permutation(const Key& key, std::int64_t count) {
  std::vector<std::int64_t> order = consecutive(std::int64_t{0}, count);
  shuffle(key, order);
  return order;
}

}  // namespace lockstep
