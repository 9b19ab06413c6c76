#pragma once

#include <cstddef>
#include <cstdint>
#include <filesystem>
#include <string>

namespace lockstep {

/// Bytes that this process can still get without swapping: what the host has available or, if that
/// is less, what its control groups (of a container, for example) allow.
[[nodiscard]] std::size_t available_memory();

/// Bytes that the control groups (versions 1 and 2) of this process still allow, read from
/// proc/self/cgroup and sys/fs/cgroup below `root`. The largest std::int64_t without a limit.
[[nodiscard]] std::size_t left_in_control_groups(const std::filesystem::path& root = "/");

/// The numbers for a message that memory has run out: this process' peak, what is still available,
/// and the limit of its address space if there is one (ulimit -v).
[[nodiscard]] std::string memory_numbers();

/// "7.1 MiB"
[[nodiscard]] std::string text_of_bytes(std::int64_t bytes);

/// Bytes of memory that this process uses. Memory that several processes share is divided among
/// them, so that the sum over processes is what they use together.
[[nodiscard]] std::size_t resident_memory();

/// From now on blocks of up to 32 MiB that this process frees stay with it, for its next
/// allocations: glibc otherwise hands what a training step frees back to the kernel, which clears
/// every page of it anew in the next step, at a third of a convolution's time and more. Done once,
/// from any thread. A program with malloc settings of its own keeps those.
void keep_freed_memory();

/// Whether the environment has malloc settings: `MALLOC_TRIM_THRESHOLD_`, `MALLOC_MMAP_THRESHOLD_`,
/// or some for malloc in `GLIBC_TUNABLES`.
[[nodiscard]] bool has_own_malloc_settings();

/// Returns freed blocks that this process has kept to the system. Any thread.
void release_freed_memory();

}  // namespace lockstep
