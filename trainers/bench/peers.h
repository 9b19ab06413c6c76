#pragma once

#include <string>
#include <vector>

#include "trainers/bench/report.h"
#include "trainers/bench/workers.h"

namespace lockstep::bench {

/// What can be measured here of what was asked for, and what cannot.
struct Contestants {
  std::vector<System> systems;
  std::vector<LeftOut> left_out;
};

/// The systems as a report has them.
[[nodiscard]] std::vector<SystemFacts> facts_of(const std::vector<System>& systems);

/// Other libraries whose collectives can be measured: the names that --systems takes.
[[nodiscard]] std::vector<std::string> collective_peers();

/// Adds the systems of such a library: one for each of the interpreters that has it, labelled with
/// its version
/// ("c10d 1.13"), or what is missing.
void add_collective_peer(const std::string& name, const std::vector<std::string>& pythons,
                         Contestants& found);

}  // namespace lockstep::bench
