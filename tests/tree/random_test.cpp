#include "framework/tree/random.h"

#include <cmath>
#include <cstdint>
#include <limits>
#include <vector>

#include <ATen/Parallel.h>
#include <ATen/TensorOperators.h>
#include <ATen/ops/tensor.h>

#include "framework/base/errors.h"
#include "framework/collectives/axis_index.h"
#include "framework/maps/pmap.h"
#include "framework/maps/vmap.h"
#include "framework/tree/tree.h"
#include "tests/catch.h"

using namespace lockstep;

namespace {

double mean_of(const Tensor& x) {
  return x.mean().item<double>();
}

}  // namespace

TEST_CASE("draws by a key never change between versions") {
  // By a generator of SplitMix64 written for this test in another language.
  const Tensor uniforms =
      at::tensor({0.7215081453323364, 0.6497042775154114, 0.5493742823600769, 0.6042347550392151},
                 at::kDouble);
  CHECK(uniform(Key(7), {4}).to(at::kDouble).equal(uniforms));
  CHECK(uniform(Key(7), {2}, {.dtype = at::kDouble})
            .equal(at::tensor({0.7215081806049702, 0.6497043364684557}, at::kDouble)));
  // 0xb8b4c2977eabce45 and 0xa65305fd338ec8fe, of which half types take the upper 11 and 8 bits
  CHECK(uniform(Key(7), {2}, {.dtype = at::kHalf})
            .to(at::kDouble)
            .equal(at::tensor({0x5c5 / 2048.0, 0x532 / 2048.0}, at::kDouble)));
  CHECK(uniform(Key(7), {2}, {.dtype = at::kBFloat16})
            .to(at::kDouble)
            .equal(at::tensor({0xb8 / 256.0, 0xa6 / 256.0}, at::kDouble)));
  const std::vector<double> normals{-0.4761291157271789, -0.6527818855959315, -0.8680472231770234,
                                    -0.6666667061231908};
  const Tensor doubles = normal(Key(7), {2, 2}, {.dtype = at::kDouble});
  const Tensor floats = normal(Key(7), {2, 2});
  for (std::int64_t i = 0; i < 4; ++i) {
    const double expected = normals[static_cast<std::size_t>(i)];
    CHECK(doubles[i / 2][i % 2].item<double>() == Approx(expected).epsilon(1e-14));
    CHECK(floats[i / 2][i % 2].item<double>() == Approx(expected).epsilon(1e-7));
  }
}

TEST_CASE("draws have the moments of their distributions") {
  const std::int64_t count = 200'000;
  const double error = 5 / std::sqrt(static_cast<double>(count));  // five standard deviations of 1
  const Tensor x = normal(Key(3).fold("moments"), {count}, {.dtype = at::kDouble});
  CHECK(std::abs(mean_of(x)) < error);
  CHECK(std::abs(mean_of(x.pow(2)) - 1) < error * std::sqrt(2));
  CHECK(std::abs(mean_of(x.pow(3))) < error * std::sqrt(15));
  CHECK(std::abs(mean_of(x.pow(4)) - 3) < error * std::sqrt(96));
  // The two numbers of a pair of draws are independent.
  CHECK(std::abs(mean_of(x.view({-1, 2}).prod(1))) < error * std::sqrt(2));
  const Tensor u = uniform(Key(3).fold("moments"), {count}, {.minval = -1, .maxval = 3});
  CHECK(std::abs(mean_of(u.to(at::kDouble)) - 1) < error * 4 / std::sqrt(12));
  CHECK(std::abs(mean_of((u.to(at::kDouble) - 1).pow(2)) - 16.0 / 12) <
        error * 16 / std::sqrt(180));
  CHECK(u.min().item<double>() >= -1);
  CHECK(u.max().item<double>() <= 3);
  for (const at::ScalarType dtype : {at::kFloat, at::kHalf, at::kBFloat16}) {
    CHECK(uniform(Key(4), {count}, {.dtype = dtype}).max().item<double>() < 1);
  }
}

TEST_CASE("draws depend on the key and the shape alone") {
  CHECK(normal(Key(1)).dim() == 0);
  CHECK(normal(Key(1), {0, 3}).sizes() == at::IntArrayRef({0, 3}));
  CHECK(normal(Key(1), {2, 3}).flatten().equal(normal(Key(1), {6})));
  CHECK_FALSE(normal(Key(1), {6}).equal(normal(Key(2), {6})));
  CHECK_FALSE(normal(Key(1), {6}).requires_grad());
  const std::vector<std::int64_t> shape{3, 20'000};
  const Tensor noise = normal(Key(1), shape);
  const int threads = at::get_num_threads();
  at::set_num_threads(threads == 1 ? 2 : 1);
  CHECK(normal(Key(1), shape).equal(noise));
  at::set_num_threads(threads);
  // The replica's own, in threads and in lanes.
  const auto own = [](const Tensor&) { return uniform(Key(1).fold(axis_index("i")), {5}); };
  const Tensor x = at::tensor({1.0, 2.0, 3.0});
  const Tensor of_replicas = pmap(own)(x);
  CHECK(vmap(own)(x).equal(of_replicas));
  for (std::int64_t i = 0; i < 3; ++i) CHECK(of_replicas[i].equal(uniform(Key(1).fold(i), {5})));
}

TEST_CASE("what cannot be drawn is refused") {
  CHECK_THROWS_WITH(normal(Key(1), {2, -3}), "normal: the shape [2, -3] has a negative size");
  CHECK_THROWS_WITH(uniform(Key(1), {2}, {.dtype = at::kLong}),
                    "uniform: the dtype must be floating, not Long");
  CHECK_THROWS_AS(uniform(Key(1), {2}, {.minval = 1, .maxval = 1}), ValueError);
  const double infinity = std::numeric_limits<double>::infinity();
  CHECK_THROWS_WITH(uniform(Key(1), {2}, {.maxval = infinity}),
                    "uniform: minval 0 must be below maxval inf, and both finite");
}
