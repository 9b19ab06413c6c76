#pragma once

#include <filesystem>
#include <string>

#include "framework/data/data.h"
#include "trainers/config.h"

namespace lockstep {

/// A run's output: where its files go, and what it shows.
struct RunOptions {
  std::filesystem::path output;  ///< the folder, made by replica 0; empty: a new one under runs/
  std::string name;              ///< what a new folder under runs/ is called after
  bool quiet = false;            ///< no progress, no summary
};

/// Trains as `config` says. Runs in each replica of launch(), with config.launch.axis_name bound.
/// Replica 0 writes the output folder and stdout. Throws ValueError if the folder already holds a
/// run or the config does not suit the data, Error if the loss is no finite number.
void run_training(const Config& config, const DataSets& data, const RunOptions& options);

}  // namespace lockstep
