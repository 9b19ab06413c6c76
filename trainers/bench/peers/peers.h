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
/// version ("c10d 1.13"); otherwise what is missing. Each is asked for its version, which may take
/// seconds. To the programs of pandas and loadtxt a table's path is to be appended.
void add_peer(const Workplace& workplace, const std::string& name,
              const std::vector<std::string>& pythons, Contestants& found);

}  // namespace lockstep::bench
