#pragma once

#include <cstdint>
#include <map>
#include <vector>

#include "framework/launch/launch.h"
#include "tests/collectives/cases.h"

namespace lockstep::testing {

/// Runs the case in threads, by pmap. Throws the error of the first replica to fail, as pmap does.
void run_in_threads(const Case& one);

/// All cases, by their numbers of replicas.
[[nodiscard]] std::map<std::int64_t, std::vector<Case>> cases_by_replicas(std::int64_t rounds);

/// Runs cases for the same number of replicas one after another in replicas that one launch()
/// starts, on so many workers (0: as many). Throws a std::runtime_error unless its status is 0;
/// stderr then has the failed cases and their errors. As processes only in programs that never map
/// nor start threads themselves.
void run_launched(const std::vector<Case>& cases, LaunchMode mode, Backend backend,
                  std::int64_t workers = 0);

}  // namespace lockstep::testing
