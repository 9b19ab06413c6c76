#include "framework/optim/optimizer_kernels.h"

#include "framework/base/instruction_set.h"

namespace lockstep::optim {

std::span<const OptimizerKernels> optimizer_kernels() {
  static const OptimizerKernels in_order_of_sets[] = {
      kPlainOptimizerKernels,
#ifdef __x86_64__
      kAvx2OptimizerKernels,
      kAvx512OptimizerKernels,
#endif
  };
  return std::span(in_order_of_sets).first(static_cast<std::size_t>(best_instruction_set()) + 1);
}

}  // namespace lockstep::optim
