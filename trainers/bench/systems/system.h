#pragma once

#include <cstdint>
#include <filesystem>
#include <functional>
#include <map>
#include <string>
#include <vector>

#include "trainers/bench/reports/report.h"

namespace lockstep::bench {

/// A program to start, with what it finds in its environment beside the driver's own.
struct Program {
  std::vector<std::string> arguments;  ///< the first is its path, or a name to be found in PATH
  std::map<std::string, std::string> environment = {};
};

/// What runs so many replicas, each of which serves (link.h) in this folder.
using Programs =
    std::function<std::vector<Program>(std::int64_t replicas, const std::filesystem::path& folder)>;

/// Something that is measured.
struct System {
  SystemFacts facts;
  Programs programs;
  /// One controller drives all replicas, as replica 0: it alone is asked.
  bool one_controller = false;
  std::int64_t replicas = 0;  ///< how many it has, whoever asks for more; 0: as many as asked
};

}  // namespace lockstep::bench
