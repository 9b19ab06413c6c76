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

/// Meets the other hosts' launchers: host 0 listens at the rendezvous, the others connect to it.
/// They compare what must be the same, and agree on the plan. Throws on all hosts: ValueError if
/// they differ, Timeout if some do not come in options.hosts.meet_timeout, CommError, Stopped.
[[nodiscard]] Hosts meet_hosts(const LaunchOptions& options);

/// Before a job that has lost a replica starts again: waits until all hosts call this. Hosts that
/// are gone, or don't come in options.timeout, are left out from here on; without host 0 the job is
/// over. Calls `prepare`, on host 0 first. Throws on all what it throws on any, and Stopped.
void meet_again(Hosts& hosts, const LaunchOptions& options, const std::function<void()>& prepare);

}  // namespace lockstep::replicas
