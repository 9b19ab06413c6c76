#pragma once

#include <map>
#include <string>
#include <vector>

namespace lockstep {

/// Something that `train` does beside training.
struct Command {
  std::string name;
  std::string help;  ///< one line
  /// `argv[0]` is the command's name. Returns the exit status, and throws what main() reports.
  int (*run)(int argc, const char* const* argv);
  /// Of several tasks that an engine has started each runs it; otherwise one does.
  bool in_each_task = false;
};

[[nodiscard]] const std::vector<Command>& commands();

/// Commands by their old spellings: today's.
[[nodiscard]] const std::map<std::string, std::string>& old_spellings();

/// train's arguments, in today's spelling: says on stderr what has taken the place of an old one.
[[nodiscard]] std::vector<const char*> in_new_spelling(int argc, const char* const* argv);

}  // namespace lockstep
