#pragma once

#include <cstddef>
#include <optional>
#include <string>

namespace lockstep {

// Limits of a process that shells and clusters set (ulimit), for messages that name them.

/// The limit of a resource as getrlimit() takes it (RLIMIT_AS); none if it is unlimited.
[[nodiscard]] std::optional<std::size_t> limit_of(int resource) noexcept;

/// Bytes of addresses that this process has in use.
[[nodiscard]] std::size_t addresses_in_use();

/// "; of its 976.6 MiB of addresses (ulimit -v) 974.3 MiB have been in use", the end of a message
/// that memory has run out; "" without such a limit.
[[nodiscard]] std::string address_limit_text();
/// "; files may have no more than 1.0 MiB (ulimit -f)", or "".
[[nodiscard]] std::string file_limit_text();
/// The end of a message that a thread can't be started: the limits that may be why.
[[nodiscard]] std::string thread_limit_text();

/// The stack of a thread that this program starts (prepare_process() sees to that), and what the
/// first thread's may grow to.
inline constexpr std::size_t kThreadStack = std::size_t{8} << 20;
/// Raises the limit of the stack (ulimit -s) as far as it is the user's to raise, up to
/// kThreadStack. Throws ValueError if it stays too small for a replica.
void require_stack();

}  // namespace lockstep
