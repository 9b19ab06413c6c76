#pragma once

#include <cstdint>
#include <string>

#include "framework/base/core_set.h"
#include "framework/engines/whereabouts.h"

// If an engine has started several tasks on a host, the one with local rank 0 runs the program for
// all: launch/host_tasks.h.

namespace lockstep::engines {

/// Returns a text that tells the tasks of this host and job from all others of the same user here;
/// "" where the engine does not tell enough.
[[nodiscard]] std::string local_job_of(const Whereabouts& where);

/// Throws ValueError on all tasks, with the command that would be right, if a host has several
/// tasks and the engine does not tell the job by which they find each other.
void require_known_tasks(const Whereabouts& where, const std::string& program);

/// "task 1 of 3 here: lends its cores to task 0, and ends with its status"; "" for a task alone.
[[nodiscard]] std::string text_of_task(const Whereabouts& where);

/// Returns the command by which the engine starts one task on each host, with so many `cores`:
/// "srun --ntasks-per-node=1 -c 8 train …". 0 leaves CORES for the user to fill in.
[[nodiscard]] std::string one_task_command(const Whereabouts& where, const std::string& program,
                                           std::int64_t cores = 0);

/// Returns the message that the task which runs the program for all has `got` fewer cores than were
/// `lent`, with the command that gives it all; "" if it has all.
[[nodiscard]] std::string missing_cores(const Whereabouts& where, const CoreSet& lent,
                                        const CoreSet& got, const std::string& program);

/// Returns how many of `replicas` run on this host by its share of tasks: 3 of 4 where it has 3 of
/// 4 tasks. 0, then on all hosts: an even share, where all have equally many tasks. Throws
/// ValueError on all tasks, with commands that would be right, if the replicas can't be divided so.
[[nodiscard]] std::int64_t share_of_replicas(const Whereabouts& where, std::int64_t replicas,
                                             const std::string& program);

}  // namespace lockstep::engines
