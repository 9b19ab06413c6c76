#pragma once

#include <filesystem>
#include <set>
#include <vector>

#include <sys/types.h>

namespace lockstep::testing {

/// What processes could leave behind when they end: noted while they run, looked for afterwards.
class Traces {
 public:
  /// Notes a running process.
  void note(pid_t pid);

  /// Of the noted processes, which have ended: sockets that listen and shared memory.
  [[nodiscard]] std::vector<std::filesystem::path> left() const;

 private:
  std::vector<pid_t> pids_;
  std::set<std::filesystem::path> files_;  // that any of them had open
};

}  // namespace lockstep::testing
