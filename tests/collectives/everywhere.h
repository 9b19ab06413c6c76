#pragma once

#include <vector>

#include "framework/replicas/launch.h"
#include "tests/collectives/cases.h"

namespace lockstep::testing {

/// Runs the case in threads, by pmap. Throws what the first replica to fail threw, as pmap does.
void run_in_threads(const Case& one);

/// Runs cases for the same number of replicas one after another in processes that one launch()
/// starts. Throws a std::runtime_error unless its status is 0; what went wrong in which case is on
/// stderr then. Only for programs that never map nor start threads themselves.
void run_in_processes(const std::vector<Case>& cases, Backend backend);

}  // namespace lockstep::testing
