#include "framework/comm/reduce_kernels.h"

#include <vector>

#include "framework/base/instruction_set.h"

namespace lockstep {
namespace {

std::vector<ReduceKernels> supported() {
  std::vector<ReduceKernels> sets{kPlainReduceKernels};
#ifdef __x86_64__
  const InstructionSet best = best_instruction_set();
  if (best >= InstructionSet::avx2) sets.push_back(kAvx2ReduceKernels);
  if (best >= InstructionSet::avx512) sets.push_back(kAvx512ReduceKernels);
#endif
  return sets;
}

}  // namespace

std::span<const ReduceKernels> reduce_kernels() {
  static const std::vector<ReduceKernels> sets = supported();
  return sets;
}

}  // namespace lockstep
