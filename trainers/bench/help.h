#pragma once

#include <string>

namespace lockstep::bench {

/// What `bench --help` prints: the commands, their flags, and how is measured.
[[nodiscard]] std::string help_text();

}  // namespace lockstep::bench
