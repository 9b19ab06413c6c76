#pragma once

#include <string_view>

#include <unistd.h>

namespace lockstep {

/// Goes to the start of a terminal's line and erases it, for lines that are replaced, as progress.
inline constexpr std::string_view kRedraw = "\r\x1b[K";

/// Returns the beginning of a whole line, which erases a line of progress on the same terminal:
/// progress comes back when it is due. "" where `descriptor` is no terminal.
[[nodiscard]] inline std::string_view line_start(int descriptor) {
  return ::isatty(descriptor) == 1 ? kRedraw : std::string_view();
}

}  // namespace lockstep
