#pragma once

#include <cstddef>
#include <span>

#include "framework/base/element_type.h"

namespace lockstep::reduce {

/// The checked arguments of reduce(): `input_count` >= 2 inputs of `bytes` each, and the outputs.
struct Reduction {
  const std::byte* const* inputs;
  std::size_t input_count;
  std::byte* const* outputs;
  std::size_t output_count;
  std::size_t bytes;
  ElementType type;
  ReduceOp op;
  /// The factor of each input of a mean, and the divisor of their sum.
  double scale;
  double divisor;
  /// True to write outputs of 2 or 4 inputs past the caches, where the CPU can. For large outputs.
  bool past_caches;
};

/// reduce()'s inner loops, compiled for one kind of CPU. Every set gives the same bits.
struct ReduceKernels {
  const char* name;
  void (*reduce)(const Reduction& reduction);
};

/// Returns the kernels that this CPU can run. The last are the best, and reduce() uses them.
[[nodiscard]] std::span<const ReduceKernels> reduce_kernels();

extern const ReduceKernels kPlainReduceKernels;
#ifdef __x86_64__
extern const ReduceKernels kAvx2ReduceKernels;
extern const ReduceKernels kAvx512ReduceKernels;
#endif

}  // namespace lockstep::reduce
