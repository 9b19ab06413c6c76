#pragma once

#include "trainers/bench/flags.h"

namespace lockstep::bench {

// Each function measures, prints its tables to stdout and writes the requested files.

void run_collectives(const Options& options);
void run_vdot(const Options& options);
void run_training(const Options& options);
void run_checkpoint(const Options& options);
void run_parts(const Options& options);

}  // namespace lockstep::bench
