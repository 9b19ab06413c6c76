#include "framework/optim/clip.h"

#include <array>
#include <cmath>
#include <cstdint>

#include <ATen/core/grad_mode.h>

#include "framework/base/errors.h"
#include "framework/base/text.h"

namespace lockstep {
namespace {

// A loop of our own because LibTorch's and the BLAS's order depends on the number of threads (and
// the norm of a float32 tensor in float32 is off by 1e-5 at a million values). Eight sums side by
// side let the compiler use vectors without changing the order.
double sum_of_squares(const at::Tensor& tensor) {
  const at::Tensor values = tensor.to(at::kDouble).contiguous();
  const double* data = values.data_ptr<double>();
  std::array<double, 8> sums{};
  std::int64_t i = 0;
  for (; i + 8 <= values.numel(); i += 8) {
    for (std::size_t lane = 0; lane < 8; ++lane) {
      const double value = data[i + static_cast<std::int64_t>(lane)];
      sums[lane] += value * value;
    }
  }
  for (std::size_t lane = 0; i < values.numel(); ++i, ++lane) sums[lane] += data[i] * data[i];
  return ((sums[0] + sums[1]) + (sums[2] + sums[3])) + ((sums[4] + sums[5]) + (sums[6] + sums[7]));
}

}  // namespace

double clip_by_global_norm(std::span<const at::Tensor> parameters, double max_norm) {
  if (!(max_norm > 0)) {
    throw ValueError(str("clip_by_global_norm: max_norm must be above 0, not ", max_norm));
  }
  const at::NoGradGuard no_grad;
  double total = 0;
  for (const at::Tensor& parameter : parameters) {
    if (parameter.grad().defined()) total += sum_of_squares(parameter.grad());
  }
  const double norm = std::sqrt(total);
  if (!std::isfinite(norm) || norm <= max_norm) return norm;
  for (const at::Tensor& parameter : parameters) {
    if (parameter.grad().defined()) parameter.grad().mul_(max_norm / norm);
  }
  return norm;
}

}  // namespace lockstep
