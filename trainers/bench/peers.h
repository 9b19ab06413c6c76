#pragma once

#include <string>
#include <vector>

#include "trainers/bench/contestants.h"

namespace lockstep::bench {

/// Other libraries whose collectives can be measured: the names that --systems takes. jax does vdot
/// too; for training there are plain, ddp, zero and torchrun, all PyTorch.
[[nodiscard]] std::vector<std::string> peer_names();

/// Adds the systems of such a library: one for each of the interpreters that has it, labelled with
/// its version ("c10d 1.13"), or what is missing.
void add_peer(const Workplace& workplace, const std::string& name,
              const std::vector<std::string>& pythons, Contestants& found);

}  // namespace lockstep::bench
