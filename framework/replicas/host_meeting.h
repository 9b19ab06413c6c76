#pragma once

#include <functional>

#include "framework/replicas/host_links.h"
#include "framework/replicas/job_plan.h"
#include "framework/replicas/launch.h"

namespace lockstep::replicas {

/// The hosts of a job that have met; of a job on this host alone, without links.
struct Hosts {
  HostLinks links;
  JobPlan plan;
};

/// Meets the launchers of the job's other hosts: host 0 listens at the rendezvous, the others
/// connect to it. They compare what must be the same, and agree on the job's plan. Throws, on all
/// hosts, ValueError if they differ, Timeout, naming them, if some do not come in options.timeout,
/// CommError, and Stopped by a signal.
[[nodiscard]] Hosts meet_hosts(const LaunchOptions& options);

/// Before a job that has lost a replica starts again: waits until all hosts call this. Hosts that
/// are gone, or don't come within options.timeout, are left out of the plan from here on; without
/// host 0 the job is over. `prepare` is called on host 0 first. Throws, on all hosts, what it
/// throws on any, and Stopped by a signal.
void meet_again(Hosts& hosts, const LaunchOptions& options, const std::function<void()>& prepare);

}  // namespace lockstep::replicas
