#pragma once

#include <cstddef>

namespace lockstep {

/// Bytes that this process could still have without anything being swapped out: what the host has
/// available, or its control groups (of a container, for example) leave, if that is less.
[[nodiscard]] std::size_t available_memory();

/// Bytes of memory that this process has in use; what it shares with others counts in parts, so
/// that the sum over processes is what they use together.
[[nodiscard]] std::size_t resident_memory();

}  // namespace lockstep
