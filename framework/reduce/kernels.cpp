#include "framework/reduce/kernels.h"

#include "framework/base/instruction_set.h"

namespace lockstep::reduce {

std::span<const ReduceKernels> reduce_kernels() {
  static const ReduceKernels in_order_of_sets[] = {
      kPlainReduceKernels,
#ifdef __x86_64__
      kAvx2ReduceKernels,
      kAvx512ReduceKernels,
#endif
  };
  return std::span(in_order_of_sets).first(static_cast<std::size_t>(best_instruction_set()) + 1);
}

}  // namespace lockstep::reduce
