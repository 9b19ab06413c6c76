#pragma once

#include <regex>
#include <string>
#include <vector>

#include "framework/base/text.h"
#include "tests/support/pages.h"
#include "trainers/commands/command_line.h"

namespace lockstep::testing {

/// The rows of a page's table of these flags: "| `--config FILE` | The config, in YAML |".
inline std::vector<std::string> flag_rows(const std::vector<Flag>& flags) {
  std::vector<std::string> rows;
  for (const Flag& flag : with_help(flags)) {
    const std::string argument = std::regex_replace(flag.argument, std::regex("\\|"), "\\|");
    rows.push_back(
        str("| `", flag.name, argument.empty() ? "" : " ", argument, "` | ", flag.help, " |"));
  }
  return rows;
}

/// The rows of flags that a page has.
inline std::vector<std::string> flag_rows(const Page& page) {
  std::vector<std::string> rows;
  for (const std::string& line : page.prose) {
    if (line.starts_with("| `--")) rows.push_back(line);
  }
  return rows;
}

}  // namespace lockstep::testing
