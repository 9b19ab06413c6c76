#pragma once

#include <string>
#include <vector>

#include "framework/replicas/launch.h"
#include "trainers/bench/workers.h"

namespace lockstep::bench {

/// Lockstep in its several ways, in the order in which tables have them: the names that --systems
/// takes.
[[nodiscard]] std::vector<std::string> own_collective_systems();

/// Adds one of these: a system for each of the modes that it can run in. The label is its name,
/// followed by " threads" where replicas are threads of a process although they need not be.
void add_own_collective_system(const std::string& name, const std::vector<LaunchMode>& modes,
                               std::vector<System>& systems);

/// `bench worker SYSTEM LAUNCH REPLICAS FOLDER`, which the driver starts: all replicas of one such
/// system, which do what is asked through the FIFOs of the folder (link.h). Returns the program's
/// exit status.
[[nodiscard]] int run_own_worker(const std::vector<std::string>& arguments);

}  // namespace lockstep::bench
