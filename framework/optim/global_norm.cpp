#include "framework/optim/global_norm.h"

#include <algorithm>
#include <array>
#include <cmath>
#include <cstddef>

#include "framework/base/range.h"
#include "framework/base/text.h"

namespace lockstep {
namespace {

void add_elements(const optim::ElementKernels& kernels, const at::Tensor& values, ExactSum& sum) {
  constexpr std::size_t kBlocksAtOnce = 16;
  constexpr std::size_t kElementsAtOnce = kBlocksAtOnce * optim::kSquaresBlock;
  const auto* const bytes = static_cast<const std::byte*>(values.data_ptr());
  const auto count = static_cast<std::size_t>(values.numel());
  std::array<double, kBlocksAtOnce> sums;
  for (std::size_t at = 0; at < count; at += kElementsAtOnce) {
    const std::size_t size = std::min(kElementsAtOnce, count - at);
    kernels.sums_of_squares(bytes + at * values.itemsize(), size, sums.data());
    const std::size_t blocks = ceil_div(size, optim::kSquaresBlock);
    for (std::size_t i = 0; i < blocks; ++i) sum.add(sums[i]);
  }
}

}  // namespace

void add_squares(const at::Tensor& gradient, ExactSum& sum) {
  require(gradient.defined() && gradient.device().is_cpu() && gradient.dim() == 1 &&
              gradient.is_contiguous(),
          "add_squares: the gradient must have one dimension and be contiguous, on the CPU");
  const optim::OptimizerKernels& kernels = optim::optimizer_kernels().back();
  if (gradient.scalar_type() == at::kFloat) return add_elements(kernels.float32, gradient, sum);
  if (gradient.scalar_type() == at::kDouble) return add_elements(kernels.float64, gradient, sum);
  throw ValueError(lockstep::str("add_squares: a gradient in ", gradient.scalar_type(),
                                 ", must be in float32 or float64"));
}

double clip_scale(double norm, double max_norm) {
  require(max_norm > 0, "clip_scale: max_norm must be above 0, not ", max_norm);
  return std::isfinite(norm) ? std::min(1.0, max_norm / (norm + 1e-6)) : 1;
}

}  // namespace lockstep
