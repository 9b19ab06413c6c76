#pragma once

#include "trainers/bench/flags.h"

namespace lockstep::bench {

/// Measures training steps and launches, prints tables to stdout and writes the files asked for.
void run_training(const TrainingOptions& options);

}  // namespace lockstep::bench
