#include "framework/reduce/reduce.h"

#include <bit>
#include <cmath>
#include <cstdint>
#include <cstring>
#include <limits>
#include <random>
#include <vector>

#include "tests/catch.h"

using namespace lockstep;

namespace {

template <typename T>
std::vector<T> reduced(const std::vector<std::vector<T>>& inputs, ElementType type, ReduceOp op) {
  std::vector<const std::byte*> pointers;
  for (const auto& input : inputs)
    pointers.push_back(reinterpret_cast<const std::byte*>(input.data()));
  std::vector<T> output(inputs[0].size());
  reduce::reduce(pointers, std::as_writable_bytes(std::span(output)), type, op);
  return output;
}

// The canonical tree as its definition reads: split at the largest power of two below the count.
float tree_sum(const std::vector<std::vector<float>>& inputs, std::size_t at, std::size_t first,
               std::size_t count) {
  if (count == 1) return inputs[first][at];
  const std::size_t left = std::bit_floor(count - 1);
  return tree_sum(inputs, at, first, left) + tree_sum(inputs, at, first + left, count - left);
}

std::vector<std::vector<float>> random_floats(std::size_t replicas, std::size_t count,
                                              std::uint64_t seed) {
  std::mt19937_64 generator(seed);
  std::uniform_real_distribution<float> mantissa(-1.0F, 1.0F);
  std::uniform_int_distribution<int> exponent(-12, 12);
  std::vector<std::vector<float>> values(replicas, std::vector<float>(count));
  for (auto& row : values) {
    for (float& value : row) value = std::ldexp(mantissa(generator), exponent(generator));
  }
  return values;
}

}  // namespace

TEST_CASE("reduce adds in the canonical order, to the bit") {
  const std::uint64_t seed = 20240501;
  INFO("seed " << seed);
  for (const std::size_t replicas : {1, 2, 3, 4, 5, 6, 7, 8, 9, 11, 13, 16, 31, 33}) {
    for (const std::size_t count : {0, 1, 3, 511, 512, 513, 1500}) {
      const auto inputs = random_floats(replicas, count, seed + replicas);
      const auto sum = reduced(inputs, ElementType::float32, ReduceOp::sum);
      for (std::size_t i = 0; i < count; ++i) {
        const float expected = tree_sum(inputs, i, 0, replicas);
        REQUIRE(std::bit_cast<std::uint32_t>(sum[i]) == std::bit_cast<std::uint32_t>(expected));
      }
    }
  }
}

TEST_CASE("the canonical order of three, five and six, with values that show any other") {
  // 2^24 + 1 is 2^24 in float32, and 2^24 + 2 is exact: where the ones meet shows in the result.
  const float big = 16777216.0F;
  using Rows = std::vector<std::vector<float>>;
  CHECK(reduced(Rows{{1}, {1}, {big}}, ElementType::float32, ReduceOp::sum)[0] == big + 2);
  CHECK(reduced(Rows{{big}, {1}, {1}}, ElementType::float32, ReduceOp::sum)[0] == big);
  // ((0+1)+(2+3))+4: big + 3 rounds to the even big + 4; one after another would stay at big.
  CHECK(reduced(Rows{{big}, {1}, {1}, {1}, {1}}, ElementType::float32, ReduceOp::sum)[0] ==
        big + 4);
  CHECK(reduced(Rows{{1}, {1}, {1}, {1}, {big}}, ElementType::float32, ReduceOp::sum)[0] ==
        big + 4);
  // ((0+1)+(2+3))+(4+5)
  CHECK(reduced(Rows{{big}, {1}, {1}, {1}, {1}, {1}}, ElementType::float32, ReduceOp::sum)[0] ==
        big + 4);
}

TEST_CASE("half types are accumulated in float32 and rounded once") {
  // In float16, 2048 + 1 is 2048: three ones would be lost one by one.
  const std::vector<std::vector<_Float16>> halves{{2048}, {1}, {1}, {1}};
  CHECK(static_cast<float>(reduced(halves, ElementType::float16, ReduceOp::sum)[0]) == 2052.0F);
  const auto bf = [](float value) {
    return static_cast<std::uint16_t>(std::bit_cast<std::uint32_t>(value) >> 16);
  };
  // In bfloat16, 256 + 1 is 256; 259 lies between 258 and 260 and goes to the even one.
  const std::vector<std::vector<std::uint16_t>> brains{{bf(256)}, {bf(1)}, {bf(1)}, {bf(1)}};
  CHECK(reduced(brains, ElementType::bfloat16, ReduceOp::sum)[0] == bf(260));
  const std::vector<std::vector<std::uint16_t>> nans{{bf(1)}, {bf(std::nanf(""))}};
  CHECK(std::isnan(std::bit_cast<float>(
      static_cast<std::uint32_t>(reduced(nans, ElementType::bfloat16, ReduceOp::sum)[0]) << 16)));
}

TEST_CASE("a mean is divided before it is rounded, and floating") {
  // In float16 the sum of two 60000 overflows.
  const std::vector<std::vector<_Float16>> halves{{static_cast<_Float16>(60000)},
                                                  {static_cast<_Float16>(60000)}};
  CHECK(static_cast<float>(reduced(halves, ElementType::float16, ReduceOp::mean)[0]) == 60000.0F);
  const std::vector<std::vector<float>> floats{{1, 2}, {2, 2}, {4, 2}};
  CHECK(reduced(floats, ElementType::float32, ReduceOp::mean) ==
        std::vector<float>{7.0F / 3.0F, 2.0F});
  // A sum of these is infinite, and so is their mean; their safe mean is not.
  constexpr float kLarge = 3e38F;
  const std::vector<std::vector<float>> large{{kLarge}, {kLarge}, {kLarge}};
  CHECK(std::isinf(reduced(large, ElementType::float32, ReduceOp::mean)[0]));
  CHECK(reduced(large, ElementType::float32, ReduceOp::safe_mean)[0] == Approx(kLarge));
  CHECK(reduce::why_not(ElementType::int32, ReduceOp::mean) ==
        "int32 has no mean; sum it and divide");
}

TEST_CASE("integers wrap around, booleans know any and all") {
  const std::vector<std::vector<std::int8_t>> bytes{{127, -128}, {1, -1}, {1, 0}};
  CHECK(reduced(bytes, ElementType::int8, ReduceOp::sum) == std::vector<std::int8_t>{-127, 127});
  const std::vector<std::vector<std::int64_t>> longs{{std::numeric_limits<std::int64_t>::max()},
                                                     {1}};
  CHECK(reduced(longs, ElementType::int64, ReduceOp::sum)[0] ==
        std::numeric_limits<std::int64_t>::min());
  const std::vector<std::vector<std::uint8_t>> flags{{0, 0, 1}, {0, 1, 1}};
  CHECK(reduced(flags, ElementType::boolean, ReduceOp::max) == std::vector<std::uint8_t>{0, 1, 1});
  CHECK(reduced(flags, ElementType::boolean, ReduceOp::min) == std::vector<std::uint8_t>{0, 0, 1});
  CHECK(reduce::why_not(ElementType::boolean, ReduceOp::sum) ==
        "booleans have no sum; count them in int64");
}

TEST_CASE("a NaN anywhere is the result of max and min") {
  const float nan = std::nanf("");
  for (std::size_t where = 0; where < 5; ++where) {
    std::vector<std::vector<float>> inputs(5, std::vector<float>{1.0F});
    inputs[where][0] = nan;
    CHECK(std::isnan(reduced(inputs, ElementType::float32, ReduceOp::max)[0]));
    CHECK(std::isnan(reduced(inputs, ElementType::float32, ReduceOp::min)[0]));
  }
}

TEST_CASE("of zeros of both signs +0 is the greatest and -0 the least, in any order") {
  const auto has_sign = [](const auto& inputs, ElementType type, ReduceOp op) {
    return std::signbit(reduced(inputs, type, op)[0]);
  };
  for (const auto& inputs : {std::vector<std::vector<float>>{{-0.0F}, {0.0F}, {-0.0F}},
                             std::vector<std::vector<float>>{{0.0F}, {-0.0F}, {0.0F}}}) {
    CHECK(!has_sign(inputs, ElementType::float32, ReduceOp::max));
    CHECK(has_sign(inputs, ElementType::float32, ReduceOp::min));
    CHECK(!has_sign(inputs, ElementType::float32, ReduceOp::sum));
  }
  const std::vector<std::vector<double>> wide{{-0.0}, {0.0}};
  CHECK(!has_sign(wide, ElementType::float64, ReduceOp::max));
  CHECK(has_sign(wide, ElementType::float64, ReduceOp::min));
  const std::vector<std::vector<float>> negative{{-0.0F}, {-0.0F}};
  CHECK(has_sign(negative, ElementType::float32, ReduceOp::sum));
}

TEST_CASE("the output may be one of the inputs") {
  for (std::size_t into = 0; into < 5; ++into) {
    auto inputs = random_floats(5, 1300, 7);
    const auto expected = reduced(inputs, ElementType::float32, ReduceOp::sum);
    std::vector<const std::byte*> pointers;
    for (auto& input : inputs) pointers.push_back(reinterpret_cast<const std::byte*>(input.data()));
    reduce::reduce(pointers, std::as_writable_bytes(std::span(inputs[into])), ElementType::float32,
                   ReduceOp::sum);
    CHECK(std::memcmp(inputs[into].data(), expected.data(), expected.size() * sizeof(float)) == 0);
  }
}

TEST_CASE("several outputs get the same result, also in place of the inputs") {
  for (const std::size_t replicas : {1, 2, 3, 5, 9}) {
    auto inputs = random_floats(replicas, 1300, 8);
    const auto expected = reduced(inputs, ElementType::float32, ReduceOp::sum);
    std::vector<float> elsewhere(expected.size());
    std::vector<const std::byte*> from;
    std::vector<std::byte*> to{reinterpret_cast<std::byte*>(elsewhere.data())};
    for (auto& input : inputs) {
      from.push_back(reinterpret_cast<const std::byte*>(input.data()));
      to.push_back(reinterpret_cast<std::byte*>(input.data()));
    }
    reduce::reduce(from, to, expected.size() * sizeof(float), ElementType::float32, ReduceOp::sum);
    CHECK(elsewhere == expected);
    for (const auto& input : inputs) CHECK(input == expected);
  }
}
