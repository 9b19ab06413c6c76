#pragma once

#include <cstdint>

namespace lockstep {

/// Prepares this process for replicas. Programs started later inherit it all. Any thread.
/// - Closed descriptors from 0 to 2 are opened on /dev/null, in the wrong direction. Otherwise the
///   next file or pipe would take a standard stream's place, and get what is printed.
/// - SIGPIPE and SIGXFSZ are ignored if they would end the process. Writing to a closed pipe, or
///   beyond the limit of a file's size (ulimit -f), is then an error.
/// - As many descriptors may be open as the system allows.
void prepare_process();

/// Returns a number that differs between a process and its forked children, if the process has
/// called this function before the fork. One load; any thread.
[[nodiscard]] std::uint64_t process_generation() noexcept;

}  // namespace lockstep
