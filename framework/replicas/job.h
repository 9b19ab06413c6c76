#pragma once

namespace lockstep {

/// Whether this thread runs the function of a launched job: false outside launch() and in the
/// threads of maps.
[[nodiscard]] bool in_job() noexcept;

/// Makes this thread's function that of a job while it lives.
class JobScope {
 public:
  JobScope() noexcept;
  ~JobScope();
  JobScope(const JobScope&) = delete;
  JobScope& operator=(const JobScope&) = delete;
};

}  // namespace lockstep
