#include "tests/maps/slopes.h"

#include <ATen/CPUGeneratorImpl.h>
#include <ATen/TensorOperators.h>
#include <ATen/ops/allclose.h>
#include <ATen/ops/randn.h>
#include <ATen/ops/zeros.h>

#include "framework/base/random.h"
#include "framework/tree/grad.h"
#include "framework/tree/tree.h"
#include "tests/catch.h"

namespace lockstep::testing {
namespace {

Tensors like(const std::string& use, const Tensors& x) {
  Tensors all;
  for (const Tensor& leaf : x)
    all.push_back(normal(use + std::to_string(all.size()), leaf.sizes()));
  return all;
}

Tensor dot(const Tensors& a, const Tensors& b) {
  Tensor sum = at::zeros({}, at::kDouble);
  for (std::size_t l = 0; l < a.size(); ++l) sum = sum + (a[l] * b[l]).sum();
  return sum;
}

// Returns the first derivative of `loss` along a fixed direction, to be differentiated again.
Loss along(const Loss& loss, const std::string& use) {
  return [=](const Tensors& x) { return dot(grad(loss)(x), like(use, x)); };
}

double slope(const Loss& loss, const Tensors& x, const Tensors& direction) {
  constexpr double kStep = 1e-5;
  const auto moved = [&](double by) {
    Tensors all;
    for (std::size_t l = 0; l < x.size(); ++l) all.push_back(x[l] + by * direction[l]);
    return loss(all).item().toDouble();
  };
  return (moved(kStep) - moved(-kStep)) / (2 * kStep);
}

}  // namespace

Tensor normal(const std::string& use, at::IntArrayRef sizes) {
  return at::randn(sizes, at::detail::createCPUGenerator(Key(kSeed).fold(use).bits()), at::kDouble);
}

void check_slope(const Loss& loss, const Tensors& x) {
  const Tensors direction = like("direction", x);
  const double expected = slope(loss, x, direction);
  CHECK(dot(grad(loss)(x), direction).item().toDouble() ==
        Approx(expected).epsilon(1e-6).margin(1e-6));
}

void check_same(const Tensors& found, const Tensors& expected) {
  REQUIRE(found.size() == expected.size());
  for (std::size_t l = 0; l < found.size(); ++l) {
    INFO("leaf " << l << ": " << found[l] << "\nexpected " << expected[l]);
    CHECK(at::allclose(found[l], expected[l], 1e-11, 1e-11));
  }
}

void check_loss(const Loss& loss, const Loss& serial, const Tensors& x) {
  INFO("seed " << kSeed);
  const auto [value, gradient] = value_and_grad(loss)(x);
  check_same({value}, {serial(x)});
  check_same(gradient, grad(serial)(x));
  check_slope(loss, x);
  check_same(grad(along(loss, "along"))(x), grad(along(serial, "along"))(x));
  check_slope(along(loss, "along"), x);
}

Tensor weighed(const Tensor& result) {
  return (result.sin() * normal("weights", result.sizes())).sum();
}

}  // namespace lockstep::testing
