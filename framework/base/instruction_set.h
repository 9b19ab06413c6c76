#pragma once

namespace lockstep {

/// Instruction sets that kernels are compiled for. Each includes the one before. CPUs other than
/// x86-64 are `plain`.
enum class InstructionSet {
  plain,   ///< what the compiler takes for granted
  avx2,    ///< AVX2 and F16C
  avx512,  ///< AVX-512 F, BW, DQ and VL as well
};

/// The last of them that this CPU can run.
[[nodiscard]] InstructionSet best_instruction_set();

}  // namespace lockstep
