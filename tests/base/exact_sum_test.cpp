#include "framework/base/exact_sum.h"

#include <algorithm>
#include <bit>
#include <cmath>
#include <cstdint>
#include <limits>
#include <random>
#include <vector>

#include "framework/base/errors.h"
#include "tests/catch.h"

using namespace lockstep;

namespace {

constexpr double kInfinity = std::numeric_limits<double>::infinity();
constexpr double kLeast = std::numeric_limits<double>::denorm_min();

double sum_of(const std::vector<double>& values) {
  ExactSum sum;
  for (const double value : values) sum.add(value);
  return sum.value();
}

// Returns finite doubles of at least 0 whose exponents are within `spread` of a random one.
std::vector<double> random_values(std::mt19937_64& random, std::size_t count, int spread) {
  const auto base = static_cast<int>(random() % static_cast<std::uint64_t>(2047 - spread));
  std::vector<double> values(count);
  for (double& value : values) {
    const auto exponent =
        static_cast<std::uint64_t>(base) + random() % static_cast<std::uint64_t>(spread + 1);
    const std::uint64_t mantissa = random() & random() & ((std::uint64_t{1} << 52) - 1);
    value = std::bit_cast<double>(exponent << 52 | mantissa);
  }
  return values;
}

// Returns the nearest double to the sum by an expansion (Shewchuk 1997, as Python's math.fsum has
// it): partial sums that do not overlap, from which the rounding of the last is corrected.
double expansion_sum(const std::vector<double>& values) {
  std::vector<double> partials;
  for (double x : values) {
    std::size_t used = 0;
    for (double y : partials) {
      if (std::fabs(x) < std::fabs(y)) std::swap(x, y);
      const double high = x + y;
      const double low = y - (high - x);
      if (low != 0) partials[used++] = low;
      x = high;
    }
    partials.resize(used);
    partials.push_back(x);
  }
  double high = 0;
  double low = 0;
  while (!partials.empty() && low == 0) {
    const double x = high;
    const double y = partials.back();
    partials.pop_back();
    high = x + y;
    low = y - (high - x);
  }
  if (!partials.empty() && std::signbit(low) == std::signbit(partials.back())) {
    const double twice = low * 2;
    const double further = high + twice;
    if (twice == further - high) high = further;
  }
  return high;
}

}  // namespace

TEST_CASE("an exact sum of one value is that value") {
  std::mt19937_64 random(3);
  for (int i = 0; i < 100'000; ++i) {
    const double value = random_values(random, 1, 0).front();
    REQUIRE(sum_of({value}) == value);
  }
  for (const double value : {0.0, -0.0, kLeast, 3 * kLeast, 0x1p-1022, 0x1p-1022 - kLeast, 1.0,
                             std::numeric_limits<double>::max()}) {
    CHECK(sum_of({value}) == value);
  }
  CHECK(ExactSum().value() == 0);
}

TEST_CASE("an exact sum is the float64 nearest to the sum, in any order and grouping") {
  const std::uint64_t seed = std::random_device()();
  INFO("seed " << seed);
  std::mt19937_64 random(seed);
  for (const int spread : {0, 1, 10, 60, 200, 2000}) {
    for (std::size_t count = 2; count < 300; count = count * 3 / 2 + 1) {
      CAPTURE(spread, count);
      std::vector<double> values = random_values(random, count, spread);
      // The oracle overflows on the way where the sum does at its end.
      for (double& value : values) value = value > 0x1p1000 ? value * 0x1p-24 : value;
      const double expected = expansion_sum(values);
      REQUIRE(sum_of(values) == expected);
      std::shuffle(values.begin(), values.end(), random);
      REQUIRE(sum_of(values) == expected);

      ExactSum parts[3];
      for (const double value : values) parts[random() % 3].add(value);
      for (std::size_t i = 0; i < ExactSum::kLimbs; ++i) {
        parts[0].limbs()[i] += parts[1].limbs()[i] + parts[2].limbs()[i];
      }
      REQUIRE(parts[0].value() == expected);
    }
  }
}

TEST_CASE("an exact sum rounds to nearest, of two to even") {
  const double half_ulp = 0x1p-53;
  CHECK(sum_of({1, half_ulp}) == 1);
  CHECK(sum_of({1, half_ulp, kLeast}) == 1 + 0x1p-52);
  CHECK(sum_of({1 + 0x1p-52, half_ulp}) == 1 + 0x1p-51);
  CHECK(sum_of({1, half_ulp / 2, half_ulp / 2}) == 1);
  CHECK(sum_of({0x1p64, 1, 0x1p-1000}) == 0x1p64);
  CHECK(sum_of({0x1p53, 1, kLeast}) == 0x1p53 + 2);
  CHECK(sum_of({0x1p-1022 - kLeast, kLeast}) == 0x1p-1022);
}

TEST_CASE("an exact sum keeps what a float64 would lose over many values") {
  ExactSum sum;
  sum.add(0x1p60);
  for (int i = 0; i < 1'000'000; ++i) sum.add(0.001);
  // 0.001 is 1152921504606847 / 2^60, rounded to float64.
  CHECK(sum.value() == 0x1p60 + 1000);
  ExactSum tiny;
  for (int i = 0; i < 1'000'000; ++i) tiny.add(kLeast);
  CHECK(tiny.value() == 1'000'000 * kLeast);
}

TEST_CASE("an exact sum that is too large is infinite") {
  constexpr double kMost = std::numeric_limits<double>::max();
  CHECK(sum_of({kMost, kMost}) == kInfinity);
  CHECK(sum_of({kMost, 0x1p969}) == kMost);
  CHECK(sum_of({kMost, 0x1p970}) == kInfinity);  // half way, and to even is up
  ExactSum many;
  for (int i = 0; i < 100'000; ++i) many.add(kMost);
  CHECK(many.value() == kInfinity);
}

TEST_CASE("an exact sum remembers what was not finite, and adding the limbs does") {
  const double nan = std::nan("");
  CHECK(sum_of({1, kInfinity}) == kInfinity);
  CHECK(std::isnan(sum_of({1, nan, 2})));
  CHECK(std::isnan(sum_of({-nan})));
  CHECK(std::isnan(sum_of({kInfinity, nan})));
  ExactSum with;
  with.add(kInfinity);
  ExactSum all;
  all.add(1);
  for (std::size_t i = 0; i < ExactSum::kLimbs; ++i) all.limbs()[i] += with.limbs()[i];
  CHECK(all.value() == kInfinity);
}

TEST_CASE("an exact sum takes nothing below 0") {
  CHECK_THROWS_AS(sum_of({-1.0}), ValueError);
  CHECK_THROWS_WITH(sum_of({-kInfinity}), "ExactSum: values are at least 0, not -inf");
}
