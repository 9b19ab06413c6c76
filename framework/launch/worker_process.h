#pragma once

#include <array>
#include <csignal>
#include <cstdint>
#include <functional>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include <signal.h>
#include <sys/types.h>

#include "framework/base/descriptor.h"
#include "framework/base/errors.h"
#include "framework/base/non_copyable.h"
#include "framework/base/range.h"
#include "framework/base/record.h"
#include "framework/launch/job_plan.h"

namespace lockstep::launcher {

// The launcher starts each worker of a job as a process, tells it its place, and reads its report.

/// Returns a pipe's reading and writing end, closed on exec, by pipe2(2) with `flags`. Throws
/// CommError.
[[nodiscard]] std::pair<Descriptor, Descriptor> make_pipe(int flags = 0);

/// A started worker and the launcher's ends of its connections.
struct WorkerProcess {
  std::int64_t index;
  Range replicas;  ///< the replicas that it runs
  pid_t pid;
  Descriptor store;   ///< requests of its SocketStore
  Descriptor report;  ///< a socket: how its replicas ended, see Report
  Descriptor out;     ///< its stdout; closed for worker 0, which has the launcher's
  Descriptor err;     ///< its stderr
};

/// The number of this launch() call, from 0, and its source line.
struct LaunchCall {
  std::int64_t number = 0;
  std::string where{};
  LOCKSTEP_FIELDS(number, where)
};

/// The place that the launcher gives a worker at its start.
struct WorkerPlace {
  LaunchCall call{};
  JobPlan plan{};
  std::int64_t index = 0;
  std::int64_t restart = 0;  ///< how often the job was started again
  int memory = -1;           ///< the job's HostMemory
  int store = -1;
  int report = -1;
  LOCKSTEP_FIELDS(call, plan, index, restart, memory, store, report)
};

/// Returns this process' place, if it is a worker that was started anew.
[[nodiscard]] const std::optional<WorkerPlace>& inherited_place();

/// The signals by which schedulers, terminals and limits of processor time (ulimit -t) stop a job.
inline constexpr std::array kStopSignals{SIGINT, SIGTERM, SIGHUP, SIGUSR1, SIGUSR2, SIGXCPU};

/// While this lives, this thread blocks these signals: until the job's supervisor runs, nothing
/// would end the workers that have been started.
class StopsHeld : private NonCopyable {
 public:
  StopsHeld() noexcept;
  ~StopsHeld() { release(); }

  /// Unblocks the signals.
  void release() const noexcept { ::pthread_sigmask(SIG_SETMASK, &before_, nullptr); }

 private:
  sigset_t before_;
};

/// Starts the worker of `place`, and makes its store and report. Worker 0 has the launcher's stdin
/// and stdout. If this process has one thread, the worker is forked and calls `run`, which does not
/// return; otherwise the program is started anew. The worker first calls
/// leave_stops_to_launcher(is_asked) and releases `held`. A fork closes the descriptors of
/// `earlier`, the job's workers so far. Throws CommError if the system refuses.
[[nodiscard]] WorkerProcess start_worker(WorkerPlace place, std::vector<WorkerProcess>& earlier,
                                         const StopsHeld& held, bool is_asked,
                                         const std::function<void(const WorkerPlace&)>& run);

/// While this lives, this process can wait for its children. If SIGCHLD were ignored (a parent may
/// have set that), the system would reap them unseen.
class ChildrenToWaitFor : private NonCopyable {
 public:
  ChildrenToWaitFor() noexcept;
  ~ChildrenToWaitFor() { ::sigaction(SIGCHLD, &own_, nullptr); }

 private:
  struct sigaction own_;
};

/// A worker's report to the launcher on how its replicas ended. The first of several errors counts.
struct Report {
  std::int64_t replica = 0;           ///< the replica whose error is the root cause
  ErrorKind kind = ErrorKind::error;  ///< of that error
  std::string type{};                 ///< the error's type for people; "" if all functions returned
  std::string message{};              ///< the error's text for people

  LOCKSTEP_FIELDS(replica, kind, type, message)

  [[nodiscard]] bool done() const noexcept { return type.empty(); }
  /// Returns the status with which the program ends.
  [[nodiscard]] int status() const noexcept { return done() ? 0 : traits_of(kind).exit_status; }
};
/// Sends a report through a socket. Long messages are cut, so that this never waits for the reader.
void send_report(int socket, Report report) noexcept;
/// Reads the reports that have come, without waiting, and closes the socket at its end. `counts` is
/// the report that counts among all so far.
void read_reports(Descriptor& socket, std::optional<Report>& counts);

}  // namespace lockstep::launcher
