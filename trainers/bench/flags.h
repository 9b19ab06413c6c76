#pragma once

#include <cstdint>
#include <filesystem>
#include <optional>
#include <string>
#include <vector>

#include "framework/replicas/launch.h"
#include "trainers/bench/operation.h"

namespace lockstep::bench {

/// What every measurement takes.
struct CommonOptions {
  std::vector<std::string> systems;  ///< empty: all that there are
  std::vector<std::string> pythons{"python3"};
  std::int64_t repetitions = 0;  ///< 0: see measure()
  std::filesystem::path json;    ///< empty: none
};

struct CollectivesOptions : CommonOptions {
  std::vector<Operation> operations{Operation::all_reduce, Operation::reduce_scatter,
                                    Operation::all_gather};
  std::vector<std::int64_t> sizes;  ///< ascending
  std::vector<std::int64_t> replicas{2, 4};
  std::vector<LaunchMode> launch{LaunchMode::processes};
  std::filesystem::path plot;  ///< empty: none
};

struct VdotOptions : CommonOptions {};

struct TrainingOptions : CommonOptions {
  bool steps = true;     ///< measure steps
  bool launches = true;  ///< measure launches
  std::vector<std::string> models{"mlp", "cnn"};
  std::vector<std::int64_t> replicas{1, 2, 4};
  std::vector<std::int64_t> stages;  ///< of ZeRO
  std::int64_t batch = 64;           ///< samples a replica
  std::vector<LaunchMode> launch{LaunchMode::processes};
  std::filesystem::path plot;  ///< empty: none
};

/// What the command line asks for: exactly one of these.
struct Flags {
  std::optional<CollectivesOptions> collectives = std::nullopt;
  std::optional<VdotOptions> vdot = std::nullopt;
  std::optional<TrainingOptions> training = std::nullopt;
  std::optional<std::string> text;  ///< --help or --version: to be printed, and nothing else done
};

/// Throws ValueError for what is not known, lacks its value or breaks a rule.
[[nodiscard]] Flags parse_flags(int argc, const char* const* argv);

}  // namespace lockstep::bench
