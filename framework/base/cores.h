#pragma once

#include <cstdint>
#include <filesystem>

namespace lockstep {

/// Returns the number of cores that this process may use: those on which it may run (its affinity)
/// or, if that is less, as many as the CPU quota of a container or job allows.
[[nodiscard]] std::int64_t usable_cores();

/// Seconds that this process' living threads, all together, had a core or waited for one. 0 where
/// the system does not tell.
struct CoreTime {
  double ran_s = 0;
  double waited_s = 0;  ///< ready to run, but without a core
};
[[nodiscard]] CoreTime core_time();

/// Returns how many whole cores the CPU quotas of this process' control groups (versions 1 and 2)
/// allow, at least 1: a quota of 2.5 cores is 2. Without a quota: the largest std::int64_t. Reads
/// proc/self/cgroup and sys/fs/cgroup below `root`.
[[nodiscard]] std::int64_t cores_of_control_groups(const std::filesystem::path& root = "/");

}  // namespace lockstep
