#pragma once

#include <chrono>
#include <cstdint>
#include <map>
#include <memory>
#include <vector>

#include "framework/comm/communicator.h"
#include "framework/comm/store.h"

namespace lockstep {

/// This replica's place among those that launch() started, and what it needs to meet them.
struct Job {
  std::int64_t index;
  std::int64_t size;
  std::int64_t threads_per_replica;
  std::chrono::milliseconds timeout;
  std::shared_ptr<Store> store;
  std::shared_ptr<Communicator> communicator;

  /// Connections of maps that run several replicas in a member of the job, kept for the next call.
  struct MapConnections {
    std::int64_t generation = 0;  ///< counts how often they were made; the same on all members
    std::vector<std::shared_ptr<Communicator>> members{};  ///< empty: to be made
  };
  /// By how many replicas each member runs.
  std::map<std::vector<std::int64_t>, MapConnections> map_connections;
};

/// The job whose function this thread runs, or nullptr outside launch() and in the threads of maps.
[[nodiscard]] Job* current_job() noexcept;

/// Makes `job` this thread's while it lives.
class JobScope {
 public:
  explicit JobScope(Job* job) noexcept;
  ~JobScope();
  JobScope(const JobScope&) = delete;
  JobScope& operator=(const JobScope&) = delete;
};

}  // namespace lockstep
