#pragma once

#include <string>
#include <vector>

namespace lockstep {

/// The flags of a program's command line, each with its dashes ("--config").
struct FlagNames {
  std::string program;                  ///< as in "see train --help"
  std::vector<std::string> with_value;  ///< followed by it, or by = and it
  std::vector<std::string> alone;
};

/// Throws ValueError for the first wrong argument: an unknown flag (names the nearest one), a flag
/// without its value (what follows begins with --), a value for a flag that takes none, and any
/// argument that is no flag. `argc` and `argv` as main's.
void check_command_line(int argc, const char* const* argv, const FlagNames& names);

}  // namespace lockstep
