#pragma once

#include <cstdint>
#include <string>

#include "framework/base/core_set.h"
#include "framework/engines/whereabouts.h"

// Of several tasks that an engine has started on a host, the one with local rank 0 runs the program
// for all: launch/host_tasks.h.

namespace lockstep::engines {

/// What tells the tasks of this host and job from all others of the same user here; "" where the
/// engine does not tell enough.
[[nodiscard]] std::string local_job_of(const Whereabouts& where);

/// ValueError on all tasks, with the command that would be right, if there are several on a host
/// and the engine does not tell by what these find each other.
void require_known_tasks(const Whereabouts& where, const std::string& program);

/// "task 1 of 3 here: lends its cores to task 0, and ends with its status"; "" of one alone.
[[nodiscard]] std::string text_of_task(const Whereabouts& where);

/// The command by which the engine starts one task on each host, with so many `cores`, "srun
/// --ntasks-per-node=1 -c 8 train …"; 0: the user's to say.
[[nodiscard]] std::string one_task_command(const Whereabouts& where, const std::string& program,
                                           std::int64_t cores = 0);

/// Of the task that runs the program for all, whose cores are `lent`, and which has `got` these:
/// what is to be said if they are fewer, with the command that gives it all; otherwise "".
[[nodiscard]] std::string missing_cores(const Whereabouts& where, const CoreSet& lent,
                                        const CoreSet& got, const std::string& program);

/// How many of so many replicas run on this host: those of tasks, 3 of 4 where it has 3 of 4 tasks.
/// 0, then on all hosts: an even share, where all have equally many tasks. ValueError on all
/// tasks, with commands that would be right, if the replicas can't be divided so.
[[nodiscard]] std::int64_t share_of_replicas(const Whereabouts& where, std::int64_t replicas,
                                             const std::string& program);

}  // namespace lockstep::engines
