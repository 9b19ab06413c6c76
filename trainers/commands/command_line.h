#pragma once

#include <cstddef>
#include <optional>
#include <string>
#include <vector>

namespace lockstep {

/// The flags of a program's command line, each with its dashes ("--config").
struct FlagNames {
  std::string program;                  ///< as in "see train --help"
  std::vector<std::string> with_value;  ///< followed by it, or by = and it
  std::vector<std::string> alone;
  std::size_t most_operands = 0;  ///< arguments that are no flags
};

/// An argument with its value.
struct Argument {
  std::string flag;  ///< with its dashes; "": an operand
  std::string value = {};
};

/// Throws ValueError for the first wrong argument: an unknown flag (names the nearest one), a flag
/// without its value (what follows begins with --), a value for a flag that takes none, and any
/// argument that is no flag, but for the operands. `argc` and `argv` as main's.
std::vector<Argument> parse_command_line(int argc, const char* const* argv, const FlagNames& names);

/// The value of the last argument with this flag, which is "" for a flag alone; none without one.
[[nodiscard]] std::optional<std::string> value_of(const std::vector<Argument>& arguments,
                                                  const std::string& flag);

/// The command that the first argument names; "" if that is a flag or missing. ValueError, with the
/// nearest of `commands`, for an unknown one.
[[nodiscard]] std::string command_of(int argc, const char* const* argv, const std::string& program,
                                     const std::vector<std::string>& commands);

/// Writes `text` to stdout and returns 0. Error if that can't be written.
int print(const std::string& text);

}  // namespace lockstep
