#pragma once

#include <cstdint>
#include <filesystem>
#include <functional>
#include <map>
#include <string>
#include <vector>

#include "trainers/bench/reports/report.h"

namespace lockstep::bench {

/// A program to start. `environment` is added to the driver's own.
struct Program {
  std::vector<std::string> arguments;  ///< the first is its path, or a name to be found in PATH
  std::map<std::string, std::string> environment = {};
};

/// The programs that run so many replicas. Each replica serves (link.h) in this folder.
using Programs =
    std::function<std::vector<Program>(std::int64_t replicas, const std::filesystem::path& folder)>;

/// A system that is measured.
struct System {
  SystemFacts facts;
  Programs programs;
  /// One controller drives all replicas. Only replica 0, the controller, gets requests.
  bool one_controller = false;
  std::int64_t replicas = 0;  ///< how many it has, whoever asks for more; 0: as many as asked
};

/// A system whose programs are changed before they start.
[[nodiscard]] inline System changed(System system, const std::function<void(Program&)>& change) {
  system.programs = [change, programs = system.programs](std::int64_t replicas,
                                                         const std::filesystem::path& folder) {
    std::vector<Program> all = programs(replicas, folder);
    for (Program& program : all) change(program);
    return all;
  };
  return system;
}

}  // namespace lockstep::bench
