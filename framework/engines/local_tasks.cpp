#include "framework/engines/local_tasks.h"

#include <algorithm>
#include <numeric>
#include <string_view>
#include <vector>

#include "framework/base/range.h"
#include "framework/base/text.h"

namespace lockstep::engines {
namespace {

bool is_one(std::int64_t tasks) {
  return tasks == 1;
}

// Returns "4 tasks on 2 hosts", for example.
std::string tasks_text(const Whereabouts& where) {
  return str(counted(std::max(where.all_tasks, where.local_tasks), "task"), " on ",
             counted(where.hosts, "host"));
}

}  // namespace

std::string local_job_of(const Whereabouts& where) {
  if (where.job.empty() && where.local_job.empty()) return "";
  // Several hosts of a job may be one machine. A host's tasks start again together.
  return str(static_cast<int>(where.engine), ' ', where.job, ' ', where.step, ' ', where.restarts,
             ' ', where.host, ' ', where.local_job);
}

void require_known_tasks(const Whereabouts& where, const std::string& program) {
  const bool are_alone = is_one(where.local_tasks) && std::ranges::all_of(where.tasks, is_one);
  require(are_alone || !local_job_of(where).empty(), where.starter, " has started ",
          tasks_text(where),
          " and does not tell of which job, by which these would find each other. One on each host "
          "runs all its replicas: ",
          one_task_command(where, program), "; --engine none makes each a run of its own");
}

std::string text_of_task(const Whereabouts& where) {
  if (where.local_tasks == 1) return "";
  return str("task ", where.local_rank, " of ", where.local_tasks, " here: ",
             where.local_rank == 0 ? "runs the program for all of them, on the cores of all"
                                   : "lends its cores to task 0, and ends with its status");
}

std::string one_task_command(const Whereabouts& where, const std::string& program,
                             std::int64_t cores) {
  std::string starts = where.one_task_a_host;
  constexpr std::string_view kCores = "CORES";
  const std::size_t at = starts.find(kCores);
  if (cores > 0 && at != std::string::npos) starts.replace(at, kCores.size(), str(cores));
  return str(starts, ' ', program, " …");
}

std::string missing_cores(const Whereabouts& where, const CoreSet& lent, const CoreSet& got,
                          const std::string& program) {
  if (got == lent) return "";
  const auto named = [](const CoreSet& cores) {
    return str(counted(cores.size(), "core"), " (", cores.text(), ")");
  };
  return str("the ", where.local_tasks, " tasks of this host have ", named(lent),
             ", and task 0, which runs the program for all of them, gets ", named(got),
             ": its control group allows no others. Alone it has all: ",
             one_task_command(where, program, lent.size()));
}

std::int64_t share_of_replicas(const Whereabouts& where, std::int64_t replicas,
                               const std::string& program) {
  const std::int64_t all = where.all_tasks;
  if (where.hosts == 1 || all <= where.hosts) return 0;
  // Where other hosts' tasks are unknown, only a multiple of all tasks is sure to divide there.
  const std::int64_t common = std::accumulate(
      where.tasks.begin(), where.tasks.end(), where.tasks.empty() ? std::int64_t{1} : all,
      [](std::int64_t one, std::int64_t other) { return std::gcd(one, other); });
  const std::int64_t unit = all / common;
  if (replicas % unit == 0) return replicas / unit * (where.local_tasks / common);
  require(!where.tasks.empty() &&
              std::ranges::all_of(where.tasks,
                                  [&](std::int64_t tasks) { return tasks == where.local_tasks; }),
          where.starter, " has started ", tasks_text(where),
          where.tasks.empty() ? "" : str(" (", join(where.tasks, " + "), ")"), ", by which ",
          counted(replicas, "replica"), " can't be shared: ", program, " --replicas ",
          round_up(replicas, unit), " …, or ", one_task_command(where, program));
  return 0;
}

}  // namespace lockstep::engines
