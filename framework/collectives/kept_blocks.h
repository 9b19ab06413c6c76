#pragma once

#include <cstddef>

#include <c10/core/Allocator.h>

namespace lockstep::collectives {

/// Returns memory for a tensor. Freed memory is kept, and then serves another tensor of about its
/// size. In glibc's heap smaller allocations would cut it up, and the heap would grow with the
/// steps; fresh pages cost more than a collective (on a 2-core machine two processes touch 64 MiB
/// in 35 to 100 ms, and reduce as much in 9). At most the bytes that were in use at a time are
/// kept. Any thread.
[[nodiscard]] c10::DataPtr kept_block(std::size_t bytes);

/// Frees the kept_block() at `address`. Returns false if there is none.
bool free_block(void* address) noexcept;

/// Gives the blocks that nobody uses to the C library.
void give_back_blocks();

}  // namespace lockstep::collectives
