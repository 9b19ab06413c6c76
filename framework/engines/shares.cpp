#include "framework/engines/shares.h"

#include <algorithm>
#include <functional>
#include <numeric>

#include "framework/base/range.h"
#include "framework/base/text.h"

namespace lockstep::engines {

std::vector<std::int64_t> shares_of_hosts(const Whereabouts& where, std::int64_t replicas,
                                          const std::string& program) {
  const auto& tasks = where.tasks;
  const std::string command = str(where.one_task_a_host, " ", program, " …");
  require(!tasks.empty() || where.local_tasks == 1, where.starter, " has started ",
          where.local_tasks, " tasks on host ", where.host, " of ", where.hosts,
          ", and not as many on each. Start one on each: ", command);
  const bool are_even = tasks.empty() || std::ranges::count(tasks, tasks[0]) == std::ssize(tasks);
  if (are_even) {
    return mapped(consecutive(std::int64_t{0}, where.hosts),
                  [&](std::int64_t host) { return shard(replicas, where.hosts, host).size; });
  }
  const std::int64_t all = sum_of(tasks, std::identity());
  const std::int64_t unit =
      std::accumulate(tasks.begin(), tasks.end(), all, std::gcd<std::int64_t, std::int64_t>);
  require(replicas % (all / unit) == 0, where.starter, " has started ", all, " tasks on ",
          where.hosts, " hosts (",
          listed(mapped(tasks, [](std::int64_t n) { return std::to_string(n); })), "), and ",
          counted(replicas, "replica"),
          " can't be shared out as they are: take a "
          "multiple of ",
          all / unit, " replicas, or start one task on each host: ", command);
  return mapped(tasks, [&](std::int64_t n) { return replicas / (all / unit) * (n / unit); });
}

void require_one_task(const Whereabouts& where, const std::string& program) {
  const auto is_one = [](std::int64_t tasks) { return tasks == 1; };
  const bool holds = is_one(where.local_tasks) && std::ranges::all_of(where.tasks, is_one);
  const std::int64_t all =
      where.tasks.empty() ? where.local_tasks : sum_of(where.tasks, std::identity());
  require(holds, where.starter, " has started ", all, " tasks",
          where.tasks.empty() ? " here" : str(" on ", counted(where.hosts, "host")),
          ", but one on each host runs all its replicas: ", where.one_task_a_host, " ", program,
          " …; --engine none makes each a run of its own");
}

}  // namespace lockstep::engines
