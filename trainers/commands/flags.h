#pragma once

#include <cstdint>
#include <filesystem>
#include <optional>
#include <string>
#include <vector>

#include "framework/replicas/launch.h"
#include "trainers/config/config.h"

namespace lockstep {

/// What the command line of train asks for.
struct Flags {
  std::filesystem::path config;
  std::filesystem::path output;  ///< empty: a new folder under runs/
  std::vector<keys::Override>
      overrides;       ///< --set, --replicas, --workers and --launch, in their order
  std::string resume;  ///< "auto", a checkpoint's folder, or empty
  bool resume_with_changes = false;
  std::int64_t max_restarts = 0;
  HostOptions hosts{};  ///< --nnodes, --node-rank, --rendezvous and what goes with them
  bool print_config = false;
  bool dry_run = false;
  bool quiet = false;
  std::optional<std::string> text;  ///< --help and the like: to be printed, and nothing else done
};

/// Throws ValueError for unknown flags, flags without their value, and more than 1000 flags that
/// set keys.
[[nodiscard]] Flags parse_flags(int argc, const char* const* argv);

}  // namespace lockstep
