#pragma once

#include <string>
#include <vector>

#include "trainers/bench/flags.h"

namespace lockstep::bench {

/// `bench vdot`: measures the dot product of two arrays of 10,000,000 x 3 float32 values, prints it
/// and writes the file.
void run_vdot(const VdotOptions& options);

/// `bench worker vdot SYSTEM FOLDER`, which the driver starts: computes it in one of Lockstep's or
/// LibTorch's ways when it is told to through the FIFOs of the folder (link.h).
void run_vdot_worker(const std::vector<std::string>& arguments);

}  // namespace lockstep::bench
