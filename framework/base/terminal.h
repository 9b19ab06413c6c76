#pragma once

#include <string_view>

#include <unistd.h>

namespace lockstep {

/// Goes to the start of a terminal's line and erases it: of one that is written over, as progress.
inline constexpr std::string_view kRedraw = "\r\x1b[K";

/// What a whole line begins with so that it does not stand behind a line of progress on the same
/// terminal, which comes back when it is due; "" where `descriptor` is no terminal.
[[nodiscard]] inline std::string_view line_start(int descriptor) {
  return ::isatty(descriptor) == 1 ? kRedraw : std::string_view();
}

}  // namespace lockstep
