#pragma once

#include <functional>
#include <map>
#include <string>
#include <vector>

#include "framework/base/errors.h"
#include "framework/base/number_text.h"
#include "framework/base/text.h"

namespace lockstep {

/// The name of the program that has the commands of `train`, for help and messages: "train", or as
/// name_program() has said. What follows it, if anything, comes behind a blank.
[[nodiscard]] std::string program_name(const std::string& command = {});
/// By the program's path, as main's argv[0] has it. One thread, before the name is asked for.
void name_program(const std::string& path);

/// A flag as it stands on a command line.
struct Argument {
  std::string flag;  ///< with its dashes
  std::string value;
};

/// A row of a command's table of flags.
struct Flag {
  std::string name;      ///< with its dashes
  std::string argument;  ///< what its value is called; "": it takes none
  std::string help;
  std::function<void(const Argument&)> set;  ///< called each time the flag stands there, in order
  /// For a word that is no flag of the line, and what stands behind it: how this flag would be
  /// given instead, "--set trainer.epochs=3" for --epochs 3; "" if it can't be meant.
  std::function<std::string(const std::string& word, const std::string& next)> meant = {};
};

/// For a row: sets `variable` to what `parse` makes of the value; what that finds wrong gets the
/// flag's name.
template <typename T, typename Parse = std::identity>
[[nodiscard]] auto sets(T& variable, Parse parse = {}) {
  return [&variable, parse](const Argument& argument) {
    try {
      variable = parse(argument.value);
    } catch (const ValueError& error) {
      throw ValueError(str(argument.flag, ": ", error.what()));
    }
  };
}

/// For such a row of a number: what ("an integer") is expected where the value is none.
template <typename T>
[[nodiscard]] auto number_of(const char* what) {
  return [what](const std::string& text) {
    const auto parsed = parse_number<T>(text);
    require(parsed.has_value(), "expected ", what, ", found '", cut(text), "'");
    return *parsed;
  };
}

/// For the row of a flag without a value.
[[nodiscard]] inline auto sets(bool& variable) {
  return [&variable](const Argument& /*argument*/) { variable = true; };
}

/// All that a command takes, from which its arguments are read and its help is made.
struct CommandLine {
  std::string program;           ///< "train eval"
  std::string usage = {};        ///< what follows it
  std::string what = {};         ///< the first line of its help
  std::vector<Flag> flags = {};  ///< but --help, which all have
  std::string more = {};         ///< the last lines of its help
  /// Takes one argument that is no flag, such as "-"; nullptr: none may be there.
  std::function<void(const std::string&)> operand = nullptr;
  bool has_many = false;  ///< whether there may be several of these
};

/// The flags that help and pages show: --help, which all have, is the last.
[[nodiscard]] std::vector<Flag> with_help(std::vector<Flag> flags);

/// Sets what the arguments say; false, and nothing is set, if --help is among them. Throws
/// ValueError for the first wrong one: an unknown flag (says what may be meant), a flag without its
/// value (what follows begins with --), a value for a flag that takes none, and an argument that is
/// no flag, but for the operand. `argc` and `argv` as main's.
[[nodiscard]] bool parse_command_line(int argc, const char* const* argv, const CommandLine& line);

/// A line for each flag that help shows, or more.
[[nodiscard]] std::string flags_text(const std::vector<Flag>& flags);

/// The text of --help.
[[nodiscard]] std::string help_text(const CommandLine& line);

/// The command that the first argument names; "" if that is a flag or missing. ValueError for an
/// unknown one, with the nearest of `commands`.
[[nodiscard]] std::string command_of(int argc, const char* const* argv, const std::string& program,
                                     const std::vector<std::string>& commands);

/// Writes `text`, by printable(), to stdout and returns 0. Error if that can't be written;
/// where a pipe's reader is gone, SIGPIPE ends the process.
int print(const std::string& text);
/// The same with its bytes as they are.
int print_data(const std::string& text);
/// The same, but false where the reader is gone: for a replica, which would be lost if a signal
/// ended its process.
[[nodiscard]] bool print_to_reader(const std::string& text);

}  // namespace lockstep
