#include "framework/optim/clip.h"

#include <cmath>
#include <cstdint>
#include <limits>
#include <vector>

#include <ATen/Functions.h>
#include <ATen/Parallel.h>

#include "framework/base/errors.h"
#include "framework/base/random.h"
#include "tests/catch.h"

namespace lockstep {
namespace {

at::Tensor parameter_with(const at::Tensor& gradient) {
  at::Tensor parameter = at::zeros_like(gradient).requires_grad_();
  parameter.mutable_grad() = gradient;
  return parameter;
}

// Values in [-1, 1) that depend on the seed alone.
at::Tensor random_tensor(std::vector<std::int64_t> sizes, std::uint64_t seed) {
  at::Tensor tensor = at::empty(sizes, at::kFloat);
  auto* values = tensor.data_ptr<float>();
  for (std::int64_t i = 0; i < tensor.numel(); ++i) {
    const std::uint64_t bits = Key(seed).fold(static_cast<std::uint64_t>(i)).bits();
    values[i] = std::ldexp(static_cast<float>(bits >> 40), -23) - 1.0F;
  }
  return tensor;
}

TEST_CASE("clipping scales all gradients by max_norm over their common norm", "[optim]") {
  const std::vector<at::Tensor> parameters{parameter_with(at::tensor({3.0, 0.0}, at::kDouble)),
                                           parameter_with(at::tensor({-4.0}, at::kDouble))};
  CHECK(clip_by_global_norm(parameters, 2.0) == 5.0);
  CHECK(at::allclose(parameters[0].grad(), at::tensor({1.2, 0.0}, at::kDouble), 1e-15));
  CHECK(at::allclose(parameters[1].grad(), at::tensor({-1.6}, at::kDouble), 1e-15));
}

TEST_CASE("gradients within max_norm keep their bits", "[optim]") {
  const auto max_norm = GENERATE(5.0, 6.0, std::numeric_limits<double>::infinity());
  const std::vector<at::Tensor> parameters{parameter_with(at::tensor({3.0F, 4.0F}))};
  CHECK(clip_by_global_norm(parameters, max_norm) == 5.0);
  CHECK(at::equal(parameters[0].grad(), at::tensor({3.0F, 4.0F})));
}

TEST_CASE("clipping skips parameters without a gradient", "[optim]") {
  const at::Tensor without = at::ones({3}).requires_grad_();
  const std::vector<at::Tensor> parameters{without, parameter_with(at::tensor({6.0F, 8.0F}))};
  CHECK(clip_by_global_norm(parameters, 5.0) == 10.0);
  CHECK(at::equal(parameters[1].grad(), at::tensor({3.0F, 4.0F})));
  CHECK_FALSE(without.grad().defined());
  CHECK(clip_by_global_norm({}, 1.0) == 0.0);
}

TEST_CASE("the norm is that of any shapes and layouts", "[optim]") {
  constexpr std::uint64_t kSeed = 77;
  INFO("seed " << kSeed);
  const at::Tensor matrix = random_tensor({37, 53}, kSeed);
  const std::vector<at::Tensor> parameters{
      parameter_with(matrix.t()), parameter_with(random_tensor({7}, kSeed + 1)),
      parameter_with(random_tensor({0}, kSeed + 2)), parameter_with(random_tensor({}, kSeed + 3))};
  double squares = 0;
  for (const at::Tensor& parameter : parameters) {
    squares += parameter.grad().to(at::kDouble).square().sum().item<double>();
  }
  const at::Tensor before = matrix.clone();
  const double norm = clip_by_global_norm(parameters, 0.5);
  CHECK(norm == Approx(std::sqrt(squares)).epsilon(1e-13));
  CHECK(at::allclose(parameters[0].grad(), before.mul(0.5 / norm).t(), 1e-6));
  CHECK(clip_by_global_norm(parameters, 1.0) == Approx(0.5).epsilon(1e-6));
}

TEST_CASE("the norm has the same bits with any number of threads", "[optim]") {
  const std::vector<at::Tensor> parameters{parameter_with(random_tensor({200'003}, 5))};
  const int threads = at::get_num_threads();
  at::set_num_threads(1);
  const double alone = clip_by_global_norm(parameters, 1e9);
  at::set_num_threads(4);
  const double together = clip_by_global_norm(parameters, 1e9);
  at::set_num_threads(threads);
  CHECK(alone == together);
}

TEST_CASE("a norm that is not finite is returned and gradients are left alone", "[optim]") {
  const auto bad =
      GENERATE(std::numeric_limits<float>::infinity(), std::numeric_limits<float>::quiet_NaN());
  const std::vector<at::Tensor> parameters{parameter_with(at::tensor({3.0F, bad})),
                                           parameter_with(at::tensor({8.0F}))};
  CHECK_FALSE(std::isfinite(clip_by_global_norm(parameters, 1.0)));
  CHECK(parameters[0].grad()[0].item<float>() == 3.0F);
  CHECK(parameters[1].grad()[0].item<float>() == 8.0F);
}

TEST_CASE("max_norm must be above 0", "[optim]") {
  CHECK_THROWS_AS(clip_by_global_norm({}, 0.0), ValueError);
  CHECK_THROWS_WITH(clip_by_global_norm({}, -1.5), ContainsSubstring("above 0, not -1.5"));
  CHECK_THROWS_WITH(clip_by_global_norm({}, std::nan("")), ContainsSubstring("not nan"));
}

}  // namespace
}  // namespace lockstep
