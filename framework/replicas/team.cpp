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
  Job::MapConnections* keep_in = nullptr;  // where the job keeps them for the next call
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

// One number of each member of the job, in their order.
std::vector<std::int64_t> of_all_members(const Job& job, std::int64_t number) {
  std::vector<std::int64_t> numbers(static_cast<std::size_t>(job.size));
  job.communicator->all_gather(std::as_bytes(std::span(&number, 1)),
                               std::as_writable_bytes(std::span(numbers)));
  return numbers;
}

// Every member of the job says how many replicas it runs; these are numbered in the members' order.
Team team_of_job(Job& job, std::int64_t replicas) {
  const std::vector<std::int64_t> counts = of_all_members(job, replicas);
  Team team;
  team.first = std::accumulate(counts.begin(), counts.begin() + job.index, std::int64_t{0});
  team.size = std::accumulate(counts.begin(), counts.end(), std::int64_t{0});
  team.spans_processes = job.size > 1;
  if (team.size == job.size && replicas == 1) {
    team.members = {job.communicator};
    return team;
  }
  // Kept connections serve again if all members have kept theirs. Otherwise a map has failed in
  // some of them: all connect anew, under keys that no earlier attempt has used.
  Job::MapConnections& kept = job.map_connections[counts];
  const auto generations = of_all_members(job, kept.generation);
  const auto missing = of_all_members(job, kept.members.empty() ? 1 : 0);
  if (std::count(missing.begin(), missing.end(), 0) != job.size) {
    kept.members.clear();
    kept.generation = 1 + *std::max_element(generations.begin(), generations.end());
  }
  team.keep_in = &kept;
  team.members = kept.members;
  team.members.resize(static_cast<std::size_t>(replicas));
  team.store = std::make_shared<PrefixStore>(
      job.store, str("map/", join(counts, "+"), "/", kept.generation, "/"));
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
  FirstFailure failure(team.first, [&](const std::string& reason) {
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
    const at::ThreadLocalStateGuard same_state(callers_state);
    set_math_threads(threads);
    const auto member = connected(local);
    if (failure.happened()) member->abort("another replica failed");
    const AxisScope scope(
        {{options.axis_name, index, team.size, std::make_shared<AxisGroup>(member)}});
    body({local, index, member.get(), team.spans_processes});
  };
  std::vector<std::thread> running = start_threads(options.replicas, failure, replica);
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
  try {
    run_threads(options, team, threads, body);
  } catch (...) {
    if (team.keep_in != nullptr) team.keep_in->members.clear();
    throw;
  }
  if (team.keep_in != nullptr) team.keep_in->members = std::move(team.members);
}

}  // namespace lockstep
