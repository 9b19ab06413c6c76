#pragma once

#include <string_view>

namespace lockstep {

/// Print a line for people on stderr, made printable() and beginning with "lockstep: ". Any thread
/// may call these.
void log_info(std::string_view message);
void log_warning(std::string_view message);
void log_error(std::string_view message);

/// Turns log_info() off or on (default: on). Warnings and errors are always printed.
void set_quiet(bool quiet);

}  // namespace lockstep
