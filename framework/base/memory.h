#pragma once

#include <cstddef>

namespace lockstep {

/// Bytes that this process could still have without anything being swapped out: what the host has
/// available, or its control groups (of a container, for example) leave, if that is less.
[[nodiscard]] std::size_t available_memory();

}  // namespace lockstep
