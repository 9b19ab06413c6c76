#include "framework/base/instruction_set.h"

namespace lockstep {

InstructionSet best_instruction_set() {
#ifdef __x86_64__
  if (__builtin_cpu_supports("avx2") && __builtin_cpu_supports("f16c")) {
    const bool avx512 = __builtin_cpu_supports("avx512f") && __builtin_cpu_supports("avx512bw") &&
                        __builtin_cpu_supports("avx512dq") && __builtin_cpu_supports("avx512vl");
    return avx512 ? InstructionSet::avx512 : InstructionSet::avx2;
  }
#endif
  return InstructionSet::plain;
}

}  // namespace lockstep
