#pragma once

#include <cstdint>
#include <functional>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include <signal.h>
#include <sys/types.h>

#include "framework/base/shard.h"

namespace lockstep {

// A worker of a launched job as a process: how the launcher starts it, and what it does.

/// A file descriptor that closes itself.
class Descriptor {
 public:
  explicit Descriptor(int fd = -1) noexcept : fd_(fd) {}
  Descriptor(Descriptor&& other) noexcept : fd_(other.release()) {}
  Descriptor& operator=(Descriptor&& other) noexcept;
  ~Descriptor() { close(); }
  [[nodiscard]] int get() const noexcept { return fd_; }
  [[nodiscard]] bool open() const noexcept { return fd_ >= 0; }
  int release() noexcept;
  void close() noexcept;

 private:
  int fd_;
};

/// A started worker and the launcher's ends of what connects them.
struct WorkerProcess {
  std::int64_t index;
  Shard replicas;  ///< those that it runs
  pid_t pid;
  Descriptor store;   ///< requests of its SocketStore
  Descriptor report;  ///< how its replicas ended: see Report
  Descriptor out;     ///< its stdout; closed for worker 0, which has the launcher's
  Descriptor err;     ///< its stderr
};

/// What a started worker was given.
struct WorkerPlace {
  std::int64_t index;
  std::int64_t workers;   ///< of the job
  std::int64_t replicas;  ///< of the job
  int store;
  int report;
  int memory;         ///< the job's HostMemory
  std::string where;  ///< the call of launch()
};

/// Which call of launch() in the program it is, from 0, and where it stands.
struct LaunchCall {
  std::int64_t number;
  std::string where;
};

/// This process' place, if it is a worker that was started anew for this call of launch().
[[nodiscard]] std::optional<WorkerPlace> inherited_place(std::int64_t call);

/// Whether this process was started for a call of launch() after `call`.
[[nodiscard]] bool started_for_later_call(std::int64_t call);

/// Two ends that close on exec: what is written to the second is read from the first.
[[nodiscard]] std::pair<Descriptor, Descriptor> make_pipe();

/// Starts worker `index` of `workers` for `replicas` in `call` of launch(): forked into
/// `run`, which does not return, if this process has one thread, started anew otherwise. `memory`
/// is as in its place. `earlier` are those whose descriptors a fork must not keep. Throws CommError
/// if the system refuses.
[[nodiscard]] WorkerProcess start_worker(std::int64_t index, std::int64_t workers,
                                         std::int64_t replicas, const LaunchCall& call, int memory,
                                         const std::vector<WorkerProcess>& earlier,
                                         const std::function<void(const WorkerPlace&)>& run);

/// While it lives this process' children can be waited for: where SIGCHLD is ignored, also by who
/// started this program, the system would reap them unseen.
class ChildrenToWaitFor {
 public:
  ChildrenToWaitFor() noexcept;
  ~ChildrenToWaitFor();
  ChildrenToWaitFor(const ChildrenToWaitFor&) = delete;
  ChildrenToWaitFor& operator=(const ChildrenToWaitFor&) = delete;

 private:
  struct sigaction own_;
};

/// How a worker's replicas ended, as it travels to the launcher. Of several the first error counts.
struct Report {
  bool done = false;         ///< all their functions returned
  std::int64_t replica = 0;  ///< otherwise the one whose error is the root cause
  std::string type;          ///< of that error
  std::string message;       ///< likewise
  int status = 0;            ///< with which the program ends because of it
};
/// A message is cut, so that a report never waits for its reader.
void send_report(int descriptor, const Report& report) noexcept;
[[nodiscard]] std::optional<Report> parse_report(const std::string& text);

}  // namespace lockstep
