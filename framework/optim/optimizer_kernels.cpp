#include "framework/optim/optimizer_kernels.h"

#include <vector>

#include "framework/base/instruction_set.h"

namespace lockstep {
namespace {

std::vector<OptimizerKernels> supported() {
  std::vector<OptimizerKernels> sets{kPlainOptimizerKernels};
#ifdef __x86_64__
  const InstructionSet best = best_instruction_set();
  if (best >= InstructionSet::avx2) sets.push_back(kAvx2OptimizerKernels);
  if (best >= InstructionSet::avx512) sets.push_back(kAvx512OptimizerKernels);
#endif
  return sets;
}

}  // namespace

std::span<const OptimizerKernels> optimizer_kernels() {
  static const std::vector<OptimizerKernels> sets = supported();
  return sets;
}

}  // namespace lockstep
