#pragma once

#include <string>
#include <vector>

namespace lockstep {

/// A program and its arguments as a shell would take them, for what others may see: without
/// --secret-file and its path.
[[nodiscard]] std::string command_text(const std::vector<std::string>& words);

}  // namespace lockstep
