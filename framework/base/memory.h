#pragma once

#include <concepts>
#include <cstddef>
#include <filesystem>
#include <string>

namespace lockstep {

/// Bytes that processes of this host, in its control groups (of a container, for example), can
/// still get together without swapping.
[[nodiscard]] std::size_t memory_of_host();

/// Bytes of private memory that this process can still get without swapping: memory_of_host() or,
/// if that is less, what memory_limits() leave to this process (ulimit -v, -d).
[[nodiscard]] std::size_t available_memory();
/// The same of memory that it shares with other processes, which ulimit -d does not count.
[[nodiscard]] std::size_t available_shared_memory();

/// Bytes that the control groups (versions 1 and 2) of this process still allow, read from
/// proc/self/cgroup and sys/fs/cgroup below `root`. Without a limit: the largest std::int64_t.
[[nodiscard]] std::size_t left_in_control_groups(const std::filesystem::path& root = "/");

/// Empty if so many bytes more can be had. Otherwise the end of a message: "9.5 GiB, and 3.1 GiB of
/// memory are left". What takes memory by a file's contents or a config's numbers asks first: the
/// kernel gives memory that it does not have, and kills who uses it.
[[nodiscard]] std::string lack_of_memory(std::size_t bytes);

/// The numbers for a message that memory has run out: this process' peak, what is still available,
/// and the limit of what it may map if there is one (ulimit -v, -d).
[[nodiscard]] std::string memory_numbers();

/// "7.1 MiB"
[[nodiscard]] std::string text_of_bytes(double bytes);
[[nodiscard]] std::string text_of_bytes(std::integral auto bytes) {
  return text_of_bytes(static_cast<double>(bytes));
}

/// Bytes of memory that this process uses. Memory that several processes share is divided among
/// them, so that the sum over processes is what they use together.
[[nodiscard]] std::size_t resident_memory();

/// From now on this process keeps freed blocks of up to 32 MiB for its next allocations. Otherwise
/// glibc returns what a training step frees to the kernel, which clears every page again in the
/// next step; that takes a third of a convolution's time or more. Later calls do nothing. Any
/// thread may call it. If the program has malloc settings of its own, they stay.
void keep_freed_memory();

/// Whether the environment has malloc settings: `MALLOC_TRIM_THRESHOLD_`, `MALLOC_MMAP_THRESHOLD_`,
/// or some for malloc in `GLIBC_TUNABLES`.
[[nodiscard]] bool has_own_malloc_settings();

/// Returns freed blocks that this process has kept to the system. Any thread.
void release_freed_memory();

}  // namespace lockstep
