#pragma once

#include <cstddef>

namespace lockstep {
struct LaunchOptions;
}

namespace lockstep::launcher {

/// The buffer that OpenBLAS maps for each thread that multiplies. It tries without end to have it.
inline constexpr std::size_t kBlasBuffer = std::size_t{129} << 20;

/// Checks that the largest process of such a job can map, under memory_limits() (ulimit -v, -d),
/// all that it takes beside data and tensors, and takes BLAS's part at once. Throws ValueError,
/// with the numbers, if it can't, or if replicas share more than a file may have (ulimit -f).
void prepare_memory(const LaunchOptions& options);

}  // namespace lockstep::launcher
