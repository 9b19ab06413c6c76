#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "framework/engines/whereabouts.h"

namespace lockstep::engines {

/// How many of a job's replicas each host runs: as many for each task that the engine has started
/// there, so that tasks `3,1` give 8 replicas as 6 and 2. With as many tasks on each host an even
/// share, of which the first hosts have the remainder. The task with local rank 0 launches them.
/// ValueError, with the command that would be right, if they don't add up so, or if a host has
/// several tasks and those of the others are not known. It is the same on all tasks.
[[nodiscard]] std::vector<std::int64_t> shares_of_hosts(const Whereabouts& where,
                                                        std::int64_t replicas,
                                                        const std::string& program);

/// For a program of which one on each host runs all its replicas: ValueError on all tasks, with the
/// command that would be right, if the engine has started several on some host.
void require_one_task(const Whereabouts& where, const std::string& program);

}  // namespace lockstep::engines
