#pragma once

#include <cstdint>
#include <filesystem>

namespace lockstep {

/// Cores that this process may use: those on which it may run (its affinity) or, if that is less,
/// what the CPU quota of a container or job allows.
[[nodiscard]] std::int64_t usable_cores();

/// What this process' living threads have had of the cores, all together, in seconds. 0 where the
/// system does not tell.
struct CoreTime {
  double ran_s = 0;
  double waited_s = 0;  ///< ready to run, but without a core
};
[[nodiscard]] CoreTime core_time();

/// Whole cores that the CPU quotas of this process' control groups (versions 1 and 2) allow, at
/// least 1: a quota of 2.5 cores is 2. Read from proc/self/cgroup and sys/fs/cgroup below `root`.
/// Without a quota: the largest std::int64_t.
[[nodiscard]] std::int64_t cores_of_control_groups(const std::filesystem::path& root = "/");

}  // namespace lockstep
