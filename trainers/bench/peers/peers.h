#pragma once

#include <string>
#include <vector>

#include "trainers/bench/measuring/workplace.h"
#include "trainers/bench/systems/system.h"

namespace lockstep::bench {

/// What can be measured here of what was asked for, and what cannot.
struct Contestants {
  std::vector<System> systems;
  std::vector<LeftOut> left_out;
};

/// Adds the systems of another library: one for each of the interpreters that has it, labelled with
/// its version ("c10d 1.13"), or what is missing. There are c10d, openmpi and jax for collectives;
/// jax for vdot; plain, ddp, zero and torchrun, all PyTorch, for training. Each is asked for its
/// version, which may take seconds.
void add_peer(const Workplace& workplace, const std::string& name,
              const std::vector<std::string>& pythons, Contestants& found);

}  // namespace lockstep::bench
