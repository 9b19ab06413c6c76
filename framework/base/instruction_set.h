#pragma once

namespace lockstep {

/// What kernels are compiled for, each more than the one before. Of x86-64; other CPUs are `plain`.
enum class InstructionSet {
  plain,   ///< what the compiler takes for granted
  avx2,    ///< AVX2 and F16C
  avx512,  ///< AVX-512 F, BW, DQ and VL as well
};

/// The best of them that this CPU has.
[[nodiscard]] InstructionSet best_instruction_set();

}  // namespace lockstep
