#pragma once

#include <map>
#include <string>
#include <vector>

#include <sys/types.h>

namespace lockstep::bench {

/// A program to start, with what it finds in its environment beside the driver's own.
struct Program {
  std::vector<std::string> arguments;  ///< the first is its path, or a name to be found in PATH
  std::map<std::string, std::string> environment = {};
};

/// Starts it in a process group of its own (Ctrl-C is for the driver), without input and with
/// stdout and stderr to `output`; it gets SIGTERM when this process ends. What cannot be run says
/// so there and ends with status 127. Throws Error if there can be no process.
[[nodiscard]] pid_t start(const Program& program, int output);

}  // namespace lockstep::bench
