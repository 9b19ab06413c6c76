#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "framework/timeline/step_times.h"

namespace lockstep {

/// The failure of a job, whose replicas have thrown, or were lost, late or out of step, as the
/// launcher of one of its hosts knows it (LaunchOptions::after_failure).
struct JobFailure {
  std::string verdict{};      ///< the root cause, on whichever host: stderr's last text
  bool is_lost = false;       ///< a replica or a host was lost: the job could go on
  bool starts_again = false;  ///< the job is about to start again
  std::int64_t restarts = 0;  ///< how often it was started again before
  std::int64_t host = 0;
  std::int64_t hosts = 1;
  std::uint64_t noticed = 0;  ///< when this host noticed it: timeline::recorder_now()
  /// The recordings of this host's replicas at that time, also of replicas that are gone.
  std::vector<timeline::ReplicaRecording> replicas{};
};

}  // namespace lockstep
