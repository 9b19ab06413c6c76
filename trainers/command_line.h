#pragma once

#include <string>
#include <vector>

namespace lockstep {

/// What a program's command line may hold, each flag with its dashes ("--config").
struct FlagNames {
  std::string program;                  ///< as in "see train --help"
  std::vector<std::string> with_value;  ///< followed by it, or by = and it
  std::vector<std::string> alone;
};

/// Throws ValueError for a flag that is not known (and says which is near), one that lacks its
/// value (what follows begins with --), one that is given a value but takes none, and for whatever
/// else is no flag. Says it of the first argument that is wrong. `argc` and `argv` as main's.
void check_command_line(int argc, const char* const* argv, const FlagNames& names);

}  // namespace lockstep
