#pragma once

#include <filesystem>
#include <optional>

#include "framework/data/data.h"
#include "trainers/config.h"
#include "trainers/resume.h"

namespace lockstep {

/// A run's output and its beginning.
struct RunOptions {
  std::filesystem::path output;            ///< the folder, claimed for this run
  bool quiet = false;                      ///< no progress, no summary
  std::optional<ResumePoint> resume = {};  ///< where it goes on
};

/// Trains as `config` says. Runs in each replica of launch(), with config.launch.axis_name bound.
/// Replica 0 writes into the output folder and to stdout; all write checkpoints. If
/// stop_requested(), ends after a step, with a checkpoint if the config saves any. Throws DataError
/// if the checkpoint does not fit, Error if something can't be written, or if the loss is not
/// finite and the config says to stop then.
void run_training(const Config& config, const DataSets& data, const RunOptions& options);

}  // namespace lockstep
