#pragma once

#include <cstdint>
#include <string>
#include <vector>

namespace lockstep::maps {

/// Returns `requested` math threads, or if 0 usable_cores() / `replicas_on_host`, at least 1.
[[nodiscard]] std::int64_t math_threads(std::int64_t requested, std::int64_t replicas_on_host);

/// Sets LibTorch's math threads for the calling thread, a replica's.
void set_math_threads(std::int64_t threads);

/// Returns the number that was set for this thread; 0 if the thread is no replica's.
[[nodiscard]] std::int64_t own_math_threads() noexcept;

/// The BLAS that LibTorch's matrix products run on.
struct Blas {
  /// For people; OpenBLAS's has version, threads, kernels: "OpenBLAS 0.3.21 (OpenMP, SkylakeX)".
  std::string name;
  std::string warning;  ///< what is wrong with it, or ""
};
[[nodiscard]] Blas blas();

/// Returns the CPU's name; "" if the system does not say.
[[nodiscard]] std::string cpu_model();

/// Returns the instructions for which LibTorch picks its kernels on this CPU, for example "AVX2".
[[nodiscard]] std::string cpu_capability();

/// Returns the program and its arguments, as this process, or the launcher that forked it, has got
/// them.
[[nodiscard]] std::vector<std::string> command_line();

/// Returns "LibTorch 1.13.1", for people.
[[nodiscard]] std::string libtorch_version();

}  // namespace lockstep::maps
