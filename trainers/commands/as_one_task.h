#pragma once

#include <chrono>
#include <functional>
#include <string>
#include <vector>

#include "framework/engines/whereabouts.h"

namespace lockstep {

/// What this process is for, where an engine may have started several tasks on this host. The one
/// with local rank 0 calls `run`, on the cores of all of them; the others stand by, and return the
/// status with which that ends. They may take so long to meet. ValueError if they were given
/// different `arguments`.
[[nodiscard]] int as_one_task(const engines::Whereabouts& where,
                              const std::vector<std::string>& arguments,
                              std::chrono::milliseconds timeout, const std::function<int()>& run);

/// The same for a command, which meets no other hosts: under Slurm, MPI and torchrun host 0 runs
/// it. Tasks on others end at once, with 0: the engine tells the worst status of all tasks.
/// `words` are main's, from the command's name on. --engine among them is not for the command: it
/// names the engine, or none.
[[nodiscard]] int command_as_one_task(const std::string& name, std::vector<const char*> words,
                                      int (*command)(int argc, const char* const* argv));

}  // namespace lockstep
