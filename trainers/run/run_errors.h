#pragma once

#include <exception>
#include <string>

namespace lockstep {

// Errors that end a run in its midst, and what is said of its state with them.

/// Whether the error says that a replica does not come any more: its part of the state is lost.
[[nodiscard]] bool lacks_replica(const std::exception_ptr& error);

/// Throws the error that is being handled again, with a note as its last line; "": as it is. Errors
/// that have more than a message stay as they are, and the note is logged if `logs`.
[[noreturn]] void rethrow_with(const std::string& note, bool logs);

}  // namespace lockstep
