#include "framework/replicas/team.h"

#include <algorithm>
#include <map>
#include <mutex>
#include <numeric>
#include <span>
#include <thread>
#include <utility>

#include <ATen/ThreadLocalState.h>

#include "framework/axes/environment.h"
#include "framework/base/errors.h"
#include "framework/base/text.h"
#include "framework/comm/gloo_communicator.h"
#include "framework/replicas/first_failure.h"
#include "framework/replicas/job.h"
#include "framework/replicas/machine.h"

namespace lockstep {
namespace {

using Communicators = std::vector<std::shared_ptr<Communicator>>;

// The replicas of this process that a map runs, and how they reach all others of the axis. Members
// without a communicator connect through the store when their threads start.
struct Team {
  std::int64_t first = 0;  // index along the axis of this process' first replica
  std::int64_t size = 0;   // of the axis
  bool spans_processes = false;
  std::shared_ptr<Store> store;
  Communicators members;
  Communicators* keep_in = nullptr;  // where the job keeps them for the next call
};

// Teams of maps outside of jobs, between calls. Several threads may map at the same time.
class IdleTeams {
 public:
  Team take(std::int64_t replicas, std::chrono::milliseconds timeout) {
    const std::lock_guard lock(mutex_);
    auto& idle = teams_[{replicas, timeout.count()}];
    if (!idle.empty()) {
      Team team = std::move(idle.back());
      idle.pop_back();
      return team;
    }
    Team team;
    team.size = replicas;
    team.store = std::make_shared<MemoryStore>();
    team.members.resize(static_cast<std::size_t>(replicas));
    return team;
  }

  void give_back(Team team, std::chrono::milliseconds timeout) {
    const std::lock_guard lock(mutex_);
    teams_[{team.size, timeout.count()}].push_back(std::move(team));
  }

 private:
  std::mutex mutex_;
  std::map<std::pair<std::int64_t, std::int64_t>, std::vector<Team>> teams_;
};

IdleTeams& idle_teams() {
  static auto* const teams = new IdleTeams;  // never destroyed: other statics may still map
  return *teams;
}

// Every member of the job says how many replicas it runs; these are numbered in the members' order.
Team team_of_job(Job& job, std::int64_t replicas) {
  std::vector<std::int64_t> counts(static_cast<std::size_t>(job.size));
  job.communicator->all_gather(std::as_bytes(std::span(&replicas, 1)),
                               std::as_writable_bytes(std::span(counts)));
  Team team;
  team.first = std::accumulate(counts.begin(), counts.begin() + job.index, std::int64_t{0});
  team.size = std::accumulate(counts.begin(), counts.end(), std::int64_t{0});
  team.spans_processes = job.size > 1;
  if (team.size == job.size && replicas == 1) {
    team.members = {job.communicator};
    return team;
  }
  team.keep_in = &job.map_connections[counts];
  team.members = *team.keep_in;
  team.members.resize(static_cast<std::size_t>(replicas));
  team.store = std::make_shared<PrefixStore>(job.store, "map/" + join(counts, "+") + "/");
  return team;
}

void check_not_nested(const TeamOptions& options, const Job* job) {
  const auto& bound = bound_axes();
  if (bound.empty() || job != nullptr) return;
  throw ValueError(str("pmap over '", options.axis_name, "': called inside the map over '",
                       bound.back().name, "'; maps do not nest"));
}

void run_threads(const TeamOptions& options, Team& team, std::int64_t threads,
                 const std::function<void(const TeamPlace&)>& body) {
  const at::ThreadLocalState callers_state;
  std::mutex mutex;  // guards team.members while threads connect
  FirstFailure failure([&](const std::string& reason) {
    const std::lock_guard lock(mutex);
    // In a job the store is the job's: members that this failure has not reached may still need it
    // to connect, and only those of this process have failed.
    if (team.store && team.keep_in == nullptr) team.store->abort(reason);
    for (const auto& member : team.members) {
      if (member) member->abort(reason);
    }
  });
  const auto connected = [&](std::int64_t local) {
    std::shared_ptr<Communicator> member;
    {
      const std::lock_guard lock(mutex);
      member = team.members[static_cast<std::size_t>(local)];
    }
    if (member) return member;
    GlooOptions gloo;
    gloo.timeout = options.timeout;
    member = connect_gloo(team.store, static_cast<int>(team.first + local),
                          static_cast<int>(team.size), gloo);
    const std::lock_guard lock(mutex);
    team.members[static_cast<std::size_t>(local)] = member;
    return member;
  };
  const auto replica = [&](std::int64_t local) {
    const std::int64_t index = team.first + local;
    try {
      const at::ThreadLocalStateGuard same_state(callers_state);
      set_math_threads(threads);
      const auto member = connected(local);
      if (failure.happened()) member->abort("another replica failed");
      const AxisScope scope(
          {{options.axis_name, index, team.size, std::make_shared<AxisGroup>(member)}});
      body({local, index, member.get(), team.spans_processes});
    } catch (...) {
      failure.record(index);
    }
  };
  std::vector<std::thread> running;
  for (std::int64_t local = 0; local < options.replicas; ++local) {
    running.emplace_back(replica, local);
  }
  for (std::thread& thread : running) thread.join();
  failure.rethrow();
}

}  // namespace

void run_team(const TeamOptions& options, const std::function<void(const TeamPlace&)>& body) {
  Job* const job = current_job();
  check_not_nested(options, job);
  if (job == nullptr) {
    Team team = idle_teams().take(options.replicas, options.timeout);
    run_threads(options, team, math_threads(options.threads_per_replica, team.size), body);
    idle_teams().give_back(std::move(team), options.timeout);
    return;
  }
  Team team = team_of_job(*job, options.replicas);
  const std::int64_t threads =
      options.threads_per_replica > 0
          ? options.threads_per_replica
          : std::max<std::int64_t>(1, job->threads_per_replica / options.replicas);
  run_threads(options, team, threads, body);
  if (team.keep_in != nullptr) *team.keep_in = std::move(team.members);
}

}  // namespace lockstep
