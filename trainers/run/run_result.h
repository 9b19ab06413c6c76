#pragma once

#include <cstdint>
#include <vector>

#include "framework/engines/whereabouts.h"
#include "framework/telemetry/metrics.h"
#include "trainers/config/config.h"
#include "trainers/run/resume.h"

namespace lockstep {

/// A run's result with all that is known before its first step: how it runs, on what, and what it
/// changes of the run that it goes on from (nullptr: it begins). In a replica of the job, which
/// `where` has started.
[[nodiscard]] RunResult result_of_job(const Config& config, const ResumePoint* resume,
                                      const engines::Whereabouts& where);

/// For RunResult::replica_hosts. All replicas of the job together.
[[nodiscard]] std::vector<std::int64_t> hosts_of_replicas(const LaunchOptions& launch);

}  // namespace lockstep
