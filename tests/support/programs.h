#pragma once

#include <functional>
#include <string>
#include <vector>

#include <sys/types.h>

#include "trainers/bench/hosts/child_program.h"

namespace lockstep::testing {

/// Runs a function in a fork to its end.
[[nodiscard]] Ended run_forked(const std::function<int()>& body);

/// Whether a process other than a ChildProgram is gone (or a zombie, which only waits for whoever
/// reaps it).
[[nodiscard]] bool ended(pid_t pid);
/// Whether a process is stopped, as by SIGSTOP.
[[nodiscard]] bool stopped(pid_t pid);
/// The running children of a process, the oldest first.
[[nodiscard]] std::vector<pid_t> children_of(pid_t pid);

/// The lines of a text, without their ends.
[[nodiscard]] std::vector<std::string> lines_of(const std::string& text);
/// Those that contain `part`.
[[nodiscard]] std::vector<std::string> lines_with(const std::string& part, const std::string& text);

}  // namespace lockstep::testing
