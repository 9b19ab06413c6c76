#include "framework/optim/global_norm.h"

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <limits>
#include <random>
#include <vector>

#include <ATen/Functions.h>
#include <ATen/TensorOperators.h>

#include "framework/base/errors.h"
#include "tests/catch.h"
#include "tests/optim/slices.h"
#include "tests/support/settings.h"

namespace lockstep {
namespace {

using testing::random_values;

double squares_of(const std::vector<at::Tensor>& gradients) {
  ExactSum sum;
  for (const at::Tensor& gradient : gradients) add_squares(gradient, sum);
  return sum.value();
}

}  // namespace

TEST_CASE("the norm is over all gradients together", "[optim]") {
  const at::ScalarType dtype = GENERATE(at::kFloat, at::kDouble);
  CHECK(squares_of({at::tensor({3.0, 0.0}).to(dtype), at::tensor({-4.0}).to(dtype)}) == 25);
  CHECK(squares_of({}) == 0);
  CHECK(squares_of({at::empty({0}, dtype)}) == 0);
}

TEST_CASE("squares are those of the values, to rounding of float64", "[optim]") {
  INFO("seed " << testing::seed());
  const at::ScalarType dtype = GENERATE(at::kFloat, at::kDouble);
  for (const std::int64_t count : {1, 63, 64, 65, 1023, 1024, 1025, 100'003}) {
    const at::Tensor values = random_values(count, Key(testing::seed()), dtype);
    const double expected = values.to(at::kDouble).square().sum().item<double>();
    CHECK(squares_of({values}) == Approx(expected).epsilon(1e-14));
  }
}

TEST_CASE("the norm has the same bits however the gradients are cut into blocks", "[optim]") {
  INFO("seed " << testing::seed());
  const at::ScalarType dtype = GENERATE(at::kFloat, at::kDouble);
  std::mt19937_64 random(testing::seed());
  std::vector<at::Tensor> whole;
  std::vector<at::Tensor> parts;
  for (const std::int64_t count : {1, 64, 100, 5000, 70'001}) {
    const Key key = Key(testing::seed()).fold(static_cast<std::uint64_t>(count));
    whole.push_back(random_values(count, key, dtype));
    for (std::int64_t begin = 0; begin < count;) {
      const std::int64_t blocks = 1 + static_cast<std::int64_t>(random() % 30);
      const std::int64_t end = std::min(count, begin + blocks * kSquaresBlockElements);
      parts.push_back(whole.back().slice(0, begin, end));
      begin = end;
    }
  }
  const double expected = squares_of(whole);
  for (int round = 0; round < 10; ++round) {
    std::shuffle(parts.begin(), parts.end(), random);
    ExactSum replicas[3];
    for (const at::Tensor& part : parts) add_squares(part, replicas[random() % 3]);
    for (std::size_t i = 0; i < ExactSum::kLimbs; ++i) {
      replicas[0].limbs()[i] += replicas[1].limbs()[i] + replicas[2].limbs()[i];
    }
    CHECK(replicas[0].value() == expected);
  }
}

TEST_CASE("padding with zeros does not change the norm", "[optim]") {
  const at::Tensor values = random_values(100, Key(7));
  CHECK(squares_of({at::cat({values, at::zeros({28})})}) == squares_of({values}));
}

TEST_CASE("the norm of very small and very large gradients is right", "[optim]") {
  const float denormal = std::numeric_limits<float>::denorm_min();
  CHECK(squares_of({at::full({5}, denormal)}) == 5.0 * denormal * denormal);
  const double largest = std::numeric_limits<float>::max();
  CHECK(squares_of({at::full({4}, std::numeric_limits<float>::max())}) == 4 * largest * largest);
  CHECK(squares_of({at::full({1}, 1e200, at::kDouble)}) == std::numeric_limits<double>::infinity());
}

TEST_CASE("a gradient that is not finite makes the norm so", "[optim]") {
  const at::ScalarType dtype = GENERATE(at::kFloat, at::kDouble);
  const double infinity = std::numeric_limits<double>::infinity();
  CHECK(squares_of({at::ones({70}, dtype), at::full({1}, -infinity, dtype)}) == infinity);
  CHECK(std::isnan(squares_of({at::ones({70}, dtype), at::full({1}, std::nan(""), dtype)})));
}

TEST_CASE("gradients that add_squares cannot take are refused", "[optim]") {
  CHECK_THROWS_AS(squares_of({at::ones({2, 2})}), ValueError);
  CHECK_THROWS_AS(squares_of({at::ones({8}).slice(0, 0, 8, 2)}), ValueError);
  CHECK_THROWS_AS(squares_of({at::Tensor()}), ValueError);
  CHECK_THROWS_WITH(squares_of({at::ones({2}, at::kLong)}),
                    "add_squares: a gradient in Long, must be in float32 or float64");
}

TEST_CASE("clipping scales a norm down to the largest that is allowed", "[optim]") {
  const double infinity = std::numeric_limits<double>::infinity();
  CHECK(clip_scale(5, 2) == 2 / (5 + 1e-6));  // as torch.nn.utils.clip_grad_norm_
  CHECK(clip_scale(5, 5) == 5 / (5 + 1e-6));
  CHECK(clip_scale(5, 6) == 1);
  CHECK(clip_scale(0, 1) == 1);
  CHECK(clip_scale(5, infinity) == 1);
  CHECK(clip_scale(infinity, 1) == 1);
  CHECK(clip_scale(std::nan(""), 1) == 1);
  CHECK_THROWS_AS(clip_scale(1, 0), ValueError);
  CHECK_THROWS_WITH(clip_scale(1, -1.5), ContainsSubstring("above 0, not -1.5"));
  CHECK_THROWS_WITH(clip_scale(1, std::nan("")), ContainsSubstring("not nan"));
}

}  // namespace lockstep
