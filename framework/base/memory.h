#pragma once

#include <concepts>
#include <cstddef>
#include <filesystem>
#include <string>

namespace lockstep {

/// Returns the bytes that this host's processes can still get together without swapping, within
/// this process' control groups (of a container, for example).
[[nodiscard]] std::size_t memory_of_host();

/// Returns the bytes of private memory that this process can still get without swapping:
/// memory_of_host() or, if that is less, the bytes that memory_limits() leave (ulimit -v, -d).
[[nodiscard]] std::size_t available_memory();
/// The same for memory shared with other processes, which ulimit -d does not count.
[[nodiscard]] std::size_t available_shared_memory();

/// Returns the bytes that the control groups (versions 1 and 2) of this process still allow;
/// without a limit the largest std::int64_t. Reads proc/self/cgroup and sys/fs/cgroup below `root`.
[[nodiscard]] std::size_t left_in_control_groups(const std::filesystem::path& root = "/");

/// Returns "" if so many bytes more can be had, otherwise the end of a message: "9.5 GiB, and 3.1
/// GiB of memory are left". Code that takes memory by a file's contents or a config's numbers asks
/// first: the kernel gives memory that it does not have, and kills the process that uses it.
[[nodiscard]] std::string lack_of_memory(std::size_t bytes);

/// Returns the numbers for a message that memory has run out: this process' peak, the memory still
/// available and, if there is one, the limit of memory that it may map (ulimit -v, -d).
[[nodiscard]] std::string memory_numbers();

/// Returns "7.1 MiB", for example.
[[nodiscard]] std::string text_of_bytes(double bytes);
[[nodiscard]] std::string text_of_bytes(std::integral auto bytes) {
  return text_of_bytes(static_cast<double>(bytes));
}

/// Returns the bytes of memory that this process uses. Memory that several processes share is
/// divided among them, so that the sum over processes is their use together.
[[nodiscard]] std::size_t resident_memory();

/// Makes this process keep freed blocks of up to 32 MiB for its next allocations. Otherwise glibc
/// returns the blocks that a training step frees to the kernel, which clears every page again in
/// the next step; that takes a third of a convolution's time or more. Later calls do nothing. Any
/// thread may call it. If the program has malloc settings of its own, they stay.
void keep_freed_memory();

/// True if the environment has malloc settings: `MALLOC_TRIM_THRESHOLD_`, `MALLOC_MMAP_THRESHOLD_`,
/// or some for malloc in `GLIBC_TUNABLES`.
[[nodiscard]] bool has_own_malloc_settings();

/// Gives the freed blocks that this process has kept back to the system. Any thread.
void release_freed_memory();

}  // namespace lockstep
