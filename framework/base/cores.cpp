#include "framework/base/cores.h"

#include <algorithm>
#include <fstream>
#include <limits>
#include <system_error>
#include <thread>

#include "framework/base/control_groups.h"
#include "framework/base/core_set.h"

namespace lockstep {

namespace fs = std::filesystem;

std::int64_t usable_cores() {
  std::int64_t cores = CoreSet::of_thread().size();
  if (cores == 0) cores = std::max(1U, std::thread::hardware_concurrency());
  return std::min(cores, cores_of_control_groups());
}

CoreTime core_time() {
  CoreTime time;
  std::error_code ignored;
  for (const auto& thread : fs::directory_iterator("/proc/self/task", ignored)) {
    double ran = 0;
    double waited = 0;
    if (!(std::ifstream(thread.path() / "schedstat") >> ran >> waited)) continue;
    time.ran_s += ran * 1e-9;
    time.waited_s += waited * 1e-9;
  }
  return time;
}

std::int64_t cores_of_control_groups(const fs::path& root) {
  std::int64_t cores = std::numeric_limits<std::int64_t>::max();
  visit_control_groups(root, "cpu", [&](const fs::path& group, int version) {
    // The group's processes together may use `time` in each `period`.
    std::int64_t time = -1;
    std::int64_t period = 0;
    if (version == 1) {
      time = number_in(group / "cpu.cfs_quota_us").value_or(-1);
      period = number_in(group / "cpu.cfs_period_us").value_or(0);
    } else {
      std::ifstream(group / "cpu.max") >> time >> period;  // "150000 100000"; "max 100000" is none
    }
    if (time < 0 || period <= 0) return;
    cores = std::min(cores, std::max<std::int64_t>(1, time / period));
  });
  return cores;
}

}  // namespace lockstep
