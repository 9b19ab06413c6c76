#pragma once

#include <cstddef>
#include <cstdint>

namespace lockstep::replicas {

/// What OpenBLAS takes of a process' addresses for each thread that multiplies matrices. Where it
/// can't have them it tries again without end.
inline constexpr std::size_t kBlasBuffer = (std::size_t{128} << 20) + (std::size_t{1} << 20);

/// Where the addresses of a process are limited (ulimit -v): sees that a process in which
/// `replicas` run at once, with so many math threads each, has the addresses that it takes beside
/// data and tensors, and takes BLAS's at once, before it is late. `members` workers of a host share
/// memory. Throws ValueError with the limit and the numbers. Without such a limit it does nothing.
void prepare_addresses(std::int64_t replicas, std::int64_t math_threads, std::int64_t members);

}  // namespace lockstep::replicas
