#pragma once

#include <cstddef>

namespace lockstep {
struct LaunchOptions;
}

namespace lockstep::replicas {

/// What OpenBLAS maps for each thread that multiplies matrices. It tries without end to have it.
inline constexpr std::size_t kBlasBuffer = std::size_t{129} << 20;

/// Where memory_limits() are set (ulimit -v, -d): sees that the largest process of such a job can
/// map what it takes beside data and tensors, and takes BLAS's part at once. ValueError, with the
/// numbers, if not, or where replicas share more than a file may have (ulimit -f).
void prepare_memory(const LaunchOptions& options);

}  // namespace lockstep::replicas
