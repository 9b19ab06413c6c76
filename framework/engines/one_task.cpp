#include "framework/engines/one_task.h"

#include <algorithm>
#include <cstdint>
#include <functional>

#include "framework/base/range.h"
#include "framework/base/text.h"

namespace lockstep::engines {

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
