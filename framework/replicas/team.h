#pragma once

#include <chrono>
#include <cstdint>
#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "framework/comm/communicator.h"

namespace lockstep {

/// What a map needs to know to run its replicas.
struct TeamOptions {
  std::string axis_name;
  std::int64_t replicas;             ///< in this process
  std::int64_t threads_per_replica;  ///< 0: the host's cores / its replicas
  std::chrono::milliseconds timeout;
};

/// Which replica a thread of a map is.
struct TeamPlace {
  std::int64_t local;  ///< among those of this process
  std::int64_t index;  ///< along the axis
  Communicator* axis;  ///< the axis' replicas
  bool spans_processes;
};

/// Runs `body` once a replica, each in a thread of its own in which the axis is bound, and returns
/// when all have. In a launched job the axis spans all of the job's members, in order, with as many
/// replicas in each as each asks for; elsewhere it is the replicas of this process. When one
/// throws, the others' collectives end, and the call throws that first error as FirstFailure does.
///
/// Threads inherit the caller's autograd state. Connections are kept for the next call alike.
/// Throws ValueError if called inside a map: maps do not nest.
void run_team(const TeamOptions& options, const std::function<void(const TeamPlace&)>& body);

}  // namespace lockstep
