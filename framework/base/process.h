#pragma once

#include <cstdint>

namespace lockstep {

/// What replicas need of their process, from any thread: descriptors 0 to 2 are occupied, those
/// that were closed by one that can't be read or written either (or the next file, pipe or memory
/// would take a standard stream's place, and what is printed would get into it); SIGPIPE is ignored
/// where it would end the process (a peer or reader that is gone is an error of the write, not the
/// end of all), and as many descriptors may be open as the system allows. Programs started later
/// inherit all this.
void prepare_process();

/// A number that differs between a process and its forked children, if it has called this before
/// the fork. One load; any thread.
[[nodiscard]] std::uint64_t process_generation() noexcept;

}  // namespace lockstep
