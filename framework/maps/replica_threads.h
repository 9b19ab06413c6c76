#pragma once

#include <chrono>
#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <source_location>
#include <string>
#include <vector>

#include "framework/axes/environment.h"

namespace lockstep::maps {

/// A run of the backward of a map, and the call of the map that it belongs to.
struct BackwardCall {
  std::uint64_t map_call;  ///< the backward's own, unlike any other call's
  std::uint64_t number;    ///< the map's among the caller's, from 1; 0: not counted
  int times;               ///< 2: the backward of a backward
};

/// One call of a map, with all that its replicas need.
struct MapCall {
  const char* map;  ///< "pmap", for messages
  /// The map's axes. If there is one axis, its size is the sum of all members' replicas.
  std::vector<NamedAxis> axes = {};
  std::int64_t replicas = 0;             ///< how many this caller runs
  bool lanes = false;                    ///< one runs at a time; never spans a job's members
  std::int64_t threads_per_replica = 0;  ///< 0: the host's cores / its replicas
  std::chrono::milliseconds timeout{};
  std::source_location where;  ///< the map's
  /// The differentiated inputs, on which the members of a job agree: "differentiated by leaf 0".
  std::string differentiated = {};
  std::optional<BackwardCall> backward = {};  ///< none: the call runs the map itself
  bool check_vma = false;                     ///< run_map tracks the values that vary
};

/// Returns "pmap over 'i' at model.cpp:12", or "the backward of" that with "(call 3)".
[[nodiscard]] std::string text_of(const MapCall& options);

[[nodiscard]] AxisNames names_of(const MapCall& options);

/// The `map_call` of a job's own level. No map has it: next_map_call() is never 0.
inline constexpr std::uint64_t kJobCall = 0;

/// Returns true in a thread of a launched job's function, but not in its maps' threads.
[[nodiscard]] bool in_job() noexcept;

/// Returns true if the map spans the replicas of all members of a job.
[[nodiscard]] bool spans_job(const MapCall& options);

/// The replica that a thread of a map runs.
struct ReplicaThread {
  std::int64_t local;  ///< the index among the caller's replicas
  std::int64_t first;  ///< the index along the axis of the caller's first replica
  bool spans_members;  ///< the map has replicas of several members of a job
  Environment* environment;
};

/// The identities of the replicas whose backward runs, by local index. Empty: no backward.
using Identities = std::vector<std::shared_ptr<const int>>;

/// Runs `body` in the environment, and records in the call table how it ended.
void run_as(Environment& environment, const std::function<void()>& body);

/// Runs `body` once for each replica, in a thread of its own in which the axes are bound, and
/// returns when all have ended. A map of replicas (not lanes) that a job's replica calls spans all
/// of the job's members, in order; each member chooses its number of replicas. The job's own axis
/// is not bound in it. Any other map has the replicas of this process, and outer axes stay bound;
/// throws ValueError if one of the map's axes is bound already. When a replica throws, the others'
/// collectives end, and the call throws the error that FirstFailure finds.
///
/// The threads are kept_threads.h's and inherit the caller's autograd state. The members of a job
/// start them at the same node of their graphs. All must call the same map, or run the backward of
/// the same call, and differentiate by the same inputs; otherwise it is a CollectiveMismatch.
void run_replica_threads(const MapCall& options,
                         const std::function<void(const ReplicaThread&)>& body,
                         const Identities& identities = {});

}  // namespace lockstep::maps
