#pragma once

#include <chrono>
#include <cstdint>
#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "framework/axes/environment.h"

namespace lockstep {

/// What a map needs to know to run its replicas.
struct TeamOptions {
  const char* map;                   ///< "pmap", for messages
  std::vector<NamedAxis> axes;       ///< with one axis its size is what the replicas add up to
  std::int64_t replicas;             ///< in this process
  bool lanes;                        ///< one runs at a time; never spans processes
  std::int64_t threads_per_replica;  ///< 0: the host's cores / its replicas
  std::chrono::milliseconds timeout;
};

/// Which replica a thread of a map is.
struct TeamPlace {
  std::int64_t local;  ///< among those of this process
  std::int64_t first;  ///< along the axis, of this process' first replica
  bool spans_processes;
  Environment* environment;
};

/// Whose backward a team runs, by local index. Empty: nobody's.
using Identities = std::vector<std::shared_ptr<const int>>;

/// Runs `body` in the environment, and leaves on its board how it ended.
void run_as(Environment& environment, const std::function<void()>& body);

/// Runs `body` once a replica, each in a thread of its own in which the axes are bound, and returns
/// when all have. Called by a replica of a job, a team of replicas (not lanes) spans all of the
/// job's members, in order, with as many replicas in each as each asks for, and the job's own axis
/// is not bound in it. Everywhere else it is the replicas of this process, and outer axes stay
/// bound. When one throws, the others' collectives end, and the call throws that first error as
/// FirstFailure does. Threads inherit the caller's autograd state.
///
/// Throws ValueError if an axis is bound already.
void run_team(const TeamOptions& options, const std::function<void(const TeamPlace&)>& body,
              const Identities& identities = {});

}  // namespace lockstep
