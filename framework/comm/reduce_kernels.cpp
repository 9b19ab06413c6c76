#include "framework/comm/reduce_kernels.h"

#include <vector>

namespace lockstep {
namespace {

std::vector<ReduceKernels> supported() {
  std::vector<ReduceKernels> sets{kPlainReduceKernels};
#ifdef __x86_64__
  if (__builtin_cpu_supports("avx2") && __builtin_cpu_supports("f16c")) {
    sets.push_back(kAvx2ReduceKernels);
    if (__builtin_cpu_supports("avx512f") && __builtin_cpu_supports("avx512bw") &&
        __builtin_cpu_supports("avx512dq") && __builtin_cpu_supports("avx512vl")) {
      sets.push_back(kAvx512ReduceKernels);
    }
  }
#endif
  return sets;
}

}  // namespace

std::span<const ReduceKernels> reduce_kernels() {
  static const std::vector<ReduceKernels> sets = supported();
  return sets;
}

}  // namespace lockstep
