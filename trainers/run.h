#pragma once

#include <filesystem>
#include <string>

#include "framework/data/data.h"
#include "trainers/config.h"

namespace lockstep {

/// Where a run's files go and what it shows.
struct RunOptions {
  std::filesystem::path output;  ///< the folder, made by replica 0; empty: a new one under runs/
  std::string name;              ///< what a new folder under runs/ is called after
  bool quiet = false;            ///< no progress, no summary
};

/// Trains as `config` says, in each replica that launch() runs: config.parallel.axis_name is bound.
/// Replica 0 writes the output folder and stdout. Throws ValueError if the folder holds a run
/// already or the config does not suit the data, Error if the loss is no finite number.
void run_training(const Config& config, const DataSets& data, const RunOptions& options);

}  // namespace lockstep
