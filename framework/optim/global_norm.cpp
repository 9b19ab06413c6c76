#include "framework/optim/global_norm.h"

#include <algorithm>
#include <array>
#include <cmath>
#include <cstddef>

#include "framework/base/errors.h"
#include "framework/base/text.h"
#include "framework/optim/optimizer_kernels.h"

namespace lockstep {
namespace {

static_assert(kSquaresBlockElements == kSquaresBlock);

// What is worked on at a time, for block sums, and half floats widened, to stay in a near cache.
constexpr std::size_t kChunk = 1024;
constexpr std::size_t kChunkBlocks = kChunk / kSquaresBlock;

template <typename BlockSums>
void add_chunks(std::size_t count, ExactSum& sum, const BlockSums& block_sums) {
  std::array<double, kChunkBlocks> sums;
  for (std::size_t at = 0; at < count; at += kChunk) {
    const std::size_t size = std::min(kChunk, count - at);
    block_sums(at, size, sums.data());
    const std::size_t blocks = (size + kSquaresBlock - 1) / kSquaresBlock;
    for (std::size_t i = 0; i < blocks; ++i) sum.add(sums[i]);
  }
}

}  // namespace

void add_squares(const at::Tensor& gradient, ExactSum& sum) {
  if (!gradient.defined() || !gradient.device().is_cpu() || gradient.dim() != 1 ||
      !gradient.is_contiguous()) {
    throw ValueError(
        "add_squares: the gradient must have one dimension and be contiguous, on the "
        "CPU");
  }
  const OptimizerKernels& kernels = optimizer_kernels().back();
  const auto* const values = static_cast<const std::byte*>(gradient.data_ptr());
  const auto count = static_cast<std::size_t>(gradient.numel());
  const auto add_elements = [&](const ElementKernels& elements, std::size_t element_bytes) {
    add_chunks(count, sum, [&](std::size_t at, std::size_t size, double* sums) {
      elements.sums_of_squares(values + at * element_bytes, size, sums);
    });
  };
  const auto add_halves = [&](const HalfKernels& halves) {
    add_chunks(count, sum, [&](std::size_t at, std::size_t size, double* sums) {
      std::array<float, kChunk> widened;
      halves.widen(values + 2 * at, size, widened.data());
      kernels.float32.sums_of_squares(reinterpret_cast<const std::byte*>(widened.data()), size,
                                      sums);
    });
  };
  switch (gradient.scalar_type()) {
    case at::kFloat:
      return add_elements(kernels.float32, sizeof(float));
    case at::kDouble:
      return add_elements(kernels.float64, sizeof(double));
    case at::kBFloat16:
      return add_halves(kernels.bfloat16);
    case at::kHalf:
      return add_halves(kernels.float16);
    default:
      throw ValueError(lockstep::str("add_squares: a gradient in ", gradient.scalar_type(),
                                     ", must be in a floating dtype"));
  }
}

double clip_scale(double norm, double max_norm) {
  if (!(max_norm > 0)) {
    throw ValueError(lockstep::str("clip_scale: max_norm must be above 0, not ", max_norm));
  }
  return std::isfinite(norm) ? std::min(1.0, max_norm / (norm + 1e-6)) : 1;
}

}  // namespace lockstep
