#pragma once

#include <cerrno>
#include <cstddef>
#include <filesystem>
#include <optional>
#include <string>
#include <vector>

#include "framework/base/text.h"

namespace lockstep {

// Limits of a process that shells and clusters set (ulimit), for messages that name them.

/// Returns the limit of a resource, such as RLIMIT_FSIZE; nothing if it is unlimited.
[[nodiscard]] std::optional<std::size_t> limit_of(int resource) noexcept;

/// A limit on the memory that this process may map, used or not.
struct MemoryLimit {
  const char* name;         ///< "addresses (ulimit -v)", "private memory (ulimit -d)"
  bool counts_shared;       ///< true if memory shared with other processes counts
  std::size_t bytes;        ///< that the process may have
  std::size_t used = 0;     ///< of these, in use now …
  std::size_t highest = 0;  ///< … and at most so far, as far as the system tells

  [[nodiscard]] std::size_t left() const noexcept { return used < bytes ? bytes - used : 0; }
};
/// Returns the limits that are set: of all addresses (ulimit -v), and of private memory that may be
/// written (ulimit -d). The one that leaves less comes first.
[[nodiscard]] std::vector<MemoryLimit> memory_limits();

/// Returns the end of a message that memory has run out, with the limit that leaves less: "; of its
/// 976.6 MiB of addresses (ulimit -v) 974.3 MiB have been in use"; "" without a limit.
[[nodiscard]] std::string memory_limit_text();
/// Returns "; files may have no more than 1.0 MiB (ulimit -f)", or "" without such a limit.
[[nodiscard]] std::string file_limit_text();
/// Returns the system's text of an error number, with the limit that may be why: of files' size
/// (file_limit_text) or of open files (ulimit -n).
[[nodiscard]] std::string text_of_errno(int number);
/// Throws an E unless a call to the system `succeeded`: its text is str(parts...) and that of
/// errno. The parts must not change errno.
template <typename E, typename... Parts>
void require_done(bool succeeded, const Parts&... parts) {
  if (!succeeded) [[unlikely]] {
    throw E(lockstep::str(parts..., ": ", text_of_errno(errno)));
  }
}
/// Returns the end of a message that a thread can't be started: the limits that are near, which may
/// be why. Reads control groups below `root`.
[[nodiscard]] std::string thread_limit_text(const std::filesystem::path& root = "/");

}  // namespace lockstep
