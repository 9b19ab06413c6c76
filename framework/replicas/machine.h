#pragma once

#include <cstdint>
#include <string>

namespace lockstep {

/// Math threads of each of so many replicas: `requested`, or with 0 their part, at least 1, of what
/// set_math_threads() gave this thread, or of the host's cores.
[[nodiscard]] std::int64_t math_threads(std::int64_t requested, std::int64_t replicas);

/// Sets LibTorch's math threads for the calling thread, a replica's.
void set_math_threads(std::int64_t threads);

/// The BLAS that LibTorch's matrix products run on.
struct Blas {
  std::string name;     ///< for people, for example "OpenBLAS 0.3.21 (OpenMP)"
  std::string warning;  ///< what is wrong with it, or ""
};
[[nodiscard]] Blas blas();

}  // namespace lockstep
