#pragma once

#include <chrono>
#include <cstdint>
#include <map>
#include <string>

#include "framework/base/core_set.h"
#include "framework/base/descriptor.h"
#include "framework/base/non_copyable.h"
#include "framework/engines/whereabouts.h"

namespace lockstep::replicas {

// Where an engine has started several tasks on a host, the one with local rank 0 runs the program.
// The others lend it their cores, stand by, and end with its status. They find each other at a
// socket in the user's folder lockstep-UID, in XDG_RUNTIME_DIR or /tmp, which goes with it.

/// By name, what must be the same for all of them: "arguments".
using TaskFacts = std::map<std::string, std::string>;

/// The other tasks of this host, for the one with local rank 0. For one thread. Where it goes
/// without end(), as with its process, the others end with an error.
class HostTasks : private NonCopyable {
 public:
  /// Waits for all of them. Throws Timeout, naming those that don't come, and ValueError if
  /// `facts` differ. Those that have come then end with the error's status.
  HostTasks(const engines::Whereabouts& where, const TaskFacts& facts,
            std::chrono::milliseconds timeout);

  /// The cores of all tasks, this one's included.
  [[nodiscard]] const CoreSet& cores() const noexcept { return cores_; }
  /// They end with this status.
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

/// For a task with another local rank: lends its cores to the first one, and returns the status
/// with which that ends. Signals that stop a job wait for that, since engines send them to all
/// tasks. Throws Timeout if there is no first task, and ReplicaLost if it is gone without a status.
[[nodiscard]] int stand_by(const engines::Whereabouts& where, const TaskFacts& facts,
                           std::chrono::milliseconds timeout);

}  // namespace lockstep::replicas
