#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "framework/replicas/launch.h"
#include "trainers/bench/workers.h"

namespace lockstep::bench {

/// Adds Lockstep's training at these stages, a system each way its replicas run, and "alone", what
/// forward and backward take without it. Their operations are models' names, the bytes of one the
/// samples of a replica's batch.
void add_own_training_systems(const std::vector<std::int64_t>& stages,
                              const std::vector<LaunchMode>& modes, std::vector<System>& systems);

/// Runs the replicas of one of them: WAY processes|threads REPLICAS FOLDER. Returns the exit
/// status.
[[nodiscard]] int run_training_worker(const std::vector<std::string>& arguments);

}  // namespace lockstep::bench
