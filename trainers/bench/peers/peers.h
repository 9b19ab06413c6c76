#pragma once

#include <string>
#include <vector>

#include "trainers/bench/measuring/workplace.h"
#include "trainers/bench/systems/system.h"

namespace lockstep::bench {

/// Which of the requested systems can be measured here, and which cannot.
struct Contestants {
  std::vector<System> systems;
  std::vector<LeftOut> left_out;
};

/// Adds the systems of another library: one for each interpreter that has it, labelled with its
/// version ("c10d 1.13"); otherwise what is missing. Names are c10d, openmpi and jax for
/// collectives; jax for vdot; plain, ddp, zero and torchrun, all PyTorch, for training;
/// dcp, dcp_async and torch_save, all PyTorch, for checkpoint; pandas and loadtxt, which is NumPy,
/// for a table, whose path is to be appended to the program. Each is asked for its version, which
/// may take seconds.
void add_peer(const Workplace& workplace, const std::string& name,
              const std::vector<std::string>& pythons, Contestants& found);

}  // namespace lockstep::bench
