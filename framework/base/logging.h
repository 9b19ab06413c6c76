#pragma once

#include <string_view>

namespace lockstep {

/// Lines for people on stderr, each starting with "lockstep: ", by printable(). Any thread
/// may call these.
void log_info(std::string_view message);
void log_warning(std::string_view message);
void log_error(std::string_view message);

/// Whether log_info prints (default: yes). Warnings and errors always do.
void set_quiet(bool quiet);

}  // namespace lockstep
