#pragma once

#include <chrono>
#include <cstdint>
#include <map>
#include <string>

#include "framework/base/core_set.h"
#include "framework/base/descriptor.h"
#include "framework/base/non_copyable.h"
#include "framework/engines/whereabouts.h"

namespace lockstep::launcher {

// If an engine has started several tasks on a host, the task with local rank 0 runs the program.
// The others lend it their cores, stand by, and end with its status. Tasks meet at a socket in the
// user's folder lockstep-UID, in XDG_RUNTIME_DIR or /tmp; the folder goes with the socket.

/// Values by name that must be the same for all tasks: "arguments".
using TaskFacts = std::map<std::string, std::string>;

/// The other tasks of this host, held by the task with local rank 0. For one thread. If the object,
/// or its process, ends without end(), the other tasks end with an error.
class HostTasks : private NonCopyable {
 public:
  /// Waits for all tasks. Throws Timeout, naming the tasks that don't come, and ValueError if
  /// `facts` differ. Tasks that have come then end with the error's status.
  HostTasks(const engines::Whereabouts& where, const TaskFacts& facts,
            std::chrono::milliseconds timeout);

  /// Returns the cores of all tasks, this one's included.
  [[nodiscard]] const CoreSet& cores() const noexcept { return cores_; }
  /// Ends the other tasks with this status.
  void end(int status) noexcept;

 private:
  struct Task {
    Descriptor socket;
    TaskFacts facts;
  };
  void gather(const engines::Whereabouts& where, std::chrono::milliseconds timeout);
  void check(const TaskFacts& facts) const;

  std::map<std::int64_t, Task> tasks_;  // by local rank
  CoreSet cores_;
};

/// Lends the cores of a task with another local rank to task 0, and returns the status with which
/// task 0 ends. Signals that stop a job wait for that status, since engines send them to all tasks.
/// Throws Timeout if there is no task 0, and ReplicaLost if it is gone without a status.
[[nodiscard]] int stand_by(const engines::Whereabouts& where, const TaskFacts& facts,
                           std::chrono::milliseconds timeout);

}  // namespace lockstep::launcher
