#pragma once

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

}  // namespace lockstep
