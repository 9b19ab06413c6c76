#pragma once

namespace lockstep {

/// Instruction sets that kernels are compiled for. Each includes the one before. CPUs other than
/// x86-64 are `plain`.
enum class InstructionSet {
  plain,   ///< the compiler's default
  avx2,    ///< AVX2 and F16C
  avx512,  ///< AVX-512 F, BW, DQ and VL as well
};

/// Returns the largest instruction set that this CPU can run.
[[nodiscard]] inline InstructionSet best_instruction_set() {
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
