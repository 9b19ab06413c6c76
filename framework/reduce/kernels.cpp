#include "framework/reduce/kernels.h"

#include <cstddef>

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
  static const InstructionSet best = best_instruction_set();
  return std::span(in_order_of_sets).first(static_cast<std::size_t>(best) + 1);
}

}  // namespace lockstep::reduce
