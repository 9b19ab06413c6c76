#pragma once

#include <cstddef>
#include <span>

#include "framework/reduce/element_type.h"

namespace lockstep::reduce {

/// The arguments of reduce(), valid: `input_count` >= 2 buffers of `bytes` into `output_count`.
struct Reduction {
  const std::byte* const* inputs;
  std::size_t input_count;
  std::byte* const* outputs;
  std::size_t output_count;
  std::size_t bytes;
  ElementType type;
  ReduceOp op;
  /// Whether outputs of 2 or 4 inputs are written past the caches where the CPU can: for large
  /// ones.
  bool past_caches;
};

/// reduce()'s inner loops, compiled for one kind of CPU. Every set gives the same bits.
struct ReduceKernels {
  const char* name;
  void (*reduce)(const Reduction& reduction);
};

/// The sets that this CPU can run, the best, which reduce() takes, last.
[[nodiscard]] std::span<const ReduceKernels> reduce_kernels();

extern const ReduceKernels kPlainReduceKernels;
#ifdef __x86_64__
extern const ReduceKernels kAvx2ReduceKernels;
extern const ReduceKernels kAvx512ReduceKernels;
#endif

}  // namespace lockstep::reduce
