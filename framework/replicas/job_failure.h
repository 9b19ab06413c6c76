#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "framework/watch/step_times.h"

namespace lockstep {

/// How a job has failed, whose replicas have thrown, or were lost, late or out of step: as the
/// launcher of one of its hosts knows it (LaunchOptions::after_failure).
struct JobFailure {
  std::string verdict{};      ///< as stderr says it last: the root cause, on whichever host
  bool is_lost = false;       ///< a replica or a host was lost: the job could go on
  bool starts_again = false;  ///< the job is about to
  std::int64_t restarts = 0;  ///< it has been started again so often before
  std::int64_t host = 0;
  std::int64_t hosts = 1;
  std::uint64_t noticed = 0;  ///< by this host: watch::recorder_now()
  /// What this host's replicas had recorded then, whatever has become of them.
  std::vector<watch::ReplicaRecording> replicas{};
};

}  // namespace lockstep
