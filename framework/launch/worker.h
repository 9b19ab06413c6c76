#pragma once

#include <atomic>
#include <chrono>
#include <cstdint>
#include <exception>
#include <functional>
#include <memory>
#include <string>
#include <thread>
#include <vector>

#include <ATen/ThreadLocalState.h>
#include <unistd.h>

#include "framework/axes/environment.h"
#include "framework/base/mutex.h"
#include "framework/base/non_copyable.h"
#include "framework/base/output.h"
#include "framework/base/range.h"
#include "framework/base/word.h"
#include "framework/comm/cancellation.h"
#include "framework/comm/communicator.h"
#include "framework/comm/run_lock.h"
#include "framework/comm/shared/host_memory.h"
#include "framework/comm/store.h"
#include "framework/groups/local_replicas.h"
#include "framework/launch/job_plan.h"
#include "framework/launch/launch.h"
#include "framework/launch/stop_signals.h"
#include "framework/launch/worker_process.h"
#include "framework/maps/first_failure.h"
#include "framework/timeline/recorder.h"

namespace lockstep::launcher {

/// The state of the job, as this process' replicas can read it.
struct OwnJob {
  std::atomic<const Word*> asked_by{nullptr};  ///< has the signal that asks replicas to end, or 0
  std::atomic<std::int64_t> restarts{0};
  std::atomic<std::int64_t> host{0};
};
inline OwnJob own_job;

/// A worker, which runs some of the job's replicas and is connected with the others. Its replicas
/// are threads: one runs at a time, and hands over when it waits for others (RunLock). A single
/// replica has no RunLock. While the object lives, the call table shows how its replicas ended.
class Worker {
 public:
  /// Connects with the other workers, which meet in `store` and share `memory`. Throws CommError if
  /// they do not come.
  Worker(const LaunchOptions& options, const JobPlan& plan, std::int64_t index,
         const std::shared_ptr<comm::Store>& store,
         const std::shared_ptr<comm::HostMemory>& memory);

  /// Returns the replicas of the job that this worker runs.
  [[nodiscard]] const Range& replicas() const noexcept { return replicas_; }

  /// Runs `function` as `replica`, one of this worker's, in this thread, with the axis bound.
  void run(std::int64_t replica, const std::function<void()>& function);

  /// Ends the waits of this worker's replicas after a failure in the job: with `error` if that is a
  /// CollectiveMismatch (all are out of step then), or with Aborted(reason). Any thread.
  void end(const std::exception_ptr& error, const std::string& reason);

  /// Waits for the other workers, so that nobody closes connections that another still needs.
  void part() { communicator_->barrier(); }

 private:
  Range replicas_;
  std::int64_t math_threads_;
  comm::RunLock run_lock_;
  at::ThreadLocalState callers_state_;
  std::shared_ptr<comm::Communicator> communicator_;
  std::shared_ptr<groups::LocalReplicas> local_;
  std::shared_ptr<timeline::Recorder> recorder_;
  std::shared_ptr<comm::Cancellation> cancellation_ = std::make_shared<comm::Cancellation>();
  std::vector<std::unique_ptr<Environment>> places_;  // of its replicas, in order
};

/// Threads of replicas or workers. The destructor waits for all of them.
class RunningThreads : private NonCopyable {
 public:
  RunningThreads(const Range& indices, maps::FirstFailure& failure,
                 const std::function<void(std::int64_t)>& body);
  ~RunningThreads();

  /// Waits until all threads are over, and calls `look` now and then. After a failure it waits for
  /// `grace` at most, and only until it is `enough`. Returns true if all are over.
  bool wait(
      std::chrono::milliseconds grace, const std::function<void()>& look = {},
      const std::function<bool()>& enough = [] { return false; });

 private:
  void end(std::int64_t count);

  maps::FirstFailure& failure_;
  Mutex mutex_;
  Condition changed_;
  std::int64_t running_ LOCKSTEP_GUARDED_BY(mutex_);
  std::vector<std::thread> threads_;
};

/// Tells on stderr the replicas, workers, math threads and libraries of the job.
void announce(const LaunchOptions& options, const JobPlan& plan);

/// Calls LaunchOptions::after_failure, if it is set, and logs its error.
void tell_failure(const JobFailure& failure, const LaunchOptions& options);
/// Warns of a stall, and calls LaunchOptions::after_stall likewise.
void tell_stall(const std::string& warning, const LaunchOptions& options);

/// While this lives, writes to stdout and stderr don't wait for a reader. The destructor waits
/// until all is written, unless `status` is that of a stop.
struct UnreadOutput : private NonCopyable {
  /// With `keeps_stdout` nothing is left out on stdout: it has prints of replicas, not progress.
  explicit UnreadOutput(bool keeps_stdout) {
    Output::of(STDOUT_FILENO).begin(keeps_stdout);
    Output::of(STDERR_FILENO).begin();
  }
  ~UnreadOutput() {
    const StopHandler ends_the_program(stop_at_once);
    finish(status);
  }
  static void finish(int status) {
    for (const int descriptor : {STDERR_FILENO, STDOUT_FILENO}) {
      Output::of(descriptor).finish([&] { return is_status_of_stop(status); });
    }
  }
  int status = 0;  ///< the job's exit status
};

/// Runs launch() with checked options, in which the number of workers is set.
[[nodiscard]] int launch_processes(const std::function<void()>& function,
                                   const LaunchOptions& options, const LaunchCall& call);
[[nodiscard]] int launch_threads(const std::function<void()>& function,
                                 const LaunchOptions& options);

/// The longest delay before a restart.
inline constexpr std::chrono::milliseconds kLongestDelay{60'000};

}  // namespace lockstep::launcher
