#pragma once

#include <functional>

#include "framework/launch/host_links.h"
#include "framework/launch/job_plan.h"
#include "framework/launch/launch.h"

namespace lockstep::launcher {

/// The hosts of a job that have met. A job on this host alone has no links.
struct Hosts {
  HostLinks links;
  JobPlan plan;
};

/// Meets the other hosts' launchers: host 0 listens at the rendezvous, the others connect to it.
/// They compare their Facts, and agree on the plan. Throws on all hosts: ValueError if Facts
/// differ, Timeout if a host does not come within options.hosts.meet_timeout, CommError, Stopped.
[[nodiscard]] Hosts meet_hosts(const LaunchOptions& options);

/// Meets the hosts before a job that has lost a replica starts again: waits until all call this.
/// Hosts that are gone, or don't come in options.timeout, are left out from here on; without host 0
/// the job is over. Calls `prepare`, on host 0 first. Throws one host's error on all, and Stopped.
void meet_again(Hosts& hosts, const LaunchOptions& options, const std::function<void()>& prepare);

}  // namespace lockstep::launcher
