#pragma once

#include <string>
#include <vector>

#include "tests/catch.h"
#include "tests/support/programs.h"
#include "trainers/bench/testing/temporary_folder.h"

namespace lockstep::testing {

/// plot.py's command with these arguments.
inline std::vector<std::string> plot_command(const std::vector<std::string>& arguments) {
  std::vector<std::string> command{PYTHON, LOCKSTEP_SOURCE_DIR "/trainers/bench/plot.py"};
  command.insert(command.end(), arguments.begin(), arguments.end());
  return command;
}

/// The picture of a table in JSON, as an SVG.
inline std::string plotted(const std::string& json, const std::vector<std::string>& flags = {}) {
  const TemporaryFolder folder;
  std::vector<std::string> arguments = flags;
  arguments.push_back(folder.write("table.json", json));
  const Ended end = run_program(plot_command(arguments));
  INFO(end.err);
  REQUIRE(end.status == 0);
  return end.out;
}

}  // namespace lockstep::testing
