#pragma once

#include <cstdint>

namespace lockstep {

/// What launch() gave this replica beside its axis.
struct Job {
  std::int64_t threads_per_replica;
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
