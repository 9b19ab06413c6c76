#pragma once

#include <cstddef>
#include <span>

namespace lockstep::optim {

/// The buffers of one update, of `count` elements of one type.
struct UpdateBuffers {
  std::byte* parameter;
  const std::byte* gradient;
  std::byte* state[3];  ///< as many as the rule has
  std::size_t count;
};

/// One update's numbers. With g = clamp(gradient * gradient_scale, ±clip_value) +
/// weight_decay * parameter:
///
///   sgd       parameter -= lr * g
///   momentum  buffer = momentum * buffer + undamped * g
///             parameter -= lr * (of_g * g + of_buffer * buffer)
///   adam      mean = beta1 * mean + (1 - beta1) * g
///             square = beta2 * square + (1 - beta2) * g * g
///             parameter = keep * parameter - lr * mean / (root_scale * sqrt(square) + eps)
///   amsgrad   as adam, with largest = max(largest, square) under the root
struct UpdateNumbers {
  double gradient_scale;
  double clip_value;  ///< infinity: none
  double weight_decay;
  double lr;
  double momentum;
  double undamped;  ///< the part of g that the buffer takes
  double of_g;
  double of_buffer;
  double beta1;
  double beta2;
  double keep;
  double root_scale;
  double eps;
};

/// The inner loops on one type of element. Each operation is done in this type, on its own, and
/// rounded as IEEE 754 says. So a result depends only on the element itself, not on the CPU. (If it
/// is NaN, which NaN is left open.)
struct ElementKernels {
  using Update = void (*)(const UpdateBuffers&, const UpdateNumbers&);
  Update sgd;
  Update momentum;
  Update adam;
  Update amsgrad;

  /// The sums of the squares of every kSquaresBlock values, in float64 and a fixed order. The last
  /// block may be shorter.
  void (*sums_of_squares)(const std::byte* values, std::size_t count, double* sums);
};

inline constexpr std::size_t kSquaresBlock = 64;

/// All kernels, compiled for one kind of CPU. Every set gives the same bits.
struct OptimizerKernels {
  const char* name;
  ElementKernels float32;
  ElementKernels float64;
};

/// The sets that this CPU can run. The last is the best, and optimizers use it.
[[nodiscard]] std::span<const OptimizerKernels> optimizer_kernels();

extern const OptimizerKernels kPlainOptimizerKernels;
#ifdef __x86_64__
extern const OptimizerKernels kAvx2OptimizerKernels;
extern const OptimizerKernels kAvx512OptimizerKernels;
#endif

}  // namespace lockstep::optim
