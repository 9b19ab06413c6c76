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
#include "framework/base/pages.h"
#include "framework/base/range.h"
#include "framework/comm/cancellation.h"
#include "framework/comm/communicator.h"
#include "framework/comm/run_lock.h"
#include "framework/comm/shared/host_memory.h"
#include "framework/comm/store.h"
#include "framework/groups/local_replicas.h"
#include "framework/replicas/first_failure.h"
#include "framework/replicas/job_plan.h"
#include "framework/replicas/launch.h"
#include "framework/replicas/stop_signals.h"
#include "framework/replicas/worker_process.h"
#include "framework/watch/recorder.h"

namespace lockstep::replicas {

/// What this process' replicas are told of their job.
struct OwnJob {
  std::atomic<const Word*> asked_by{nullptr};  ///< has the signal that asks them to end, or 0
  std::atomic<std::int64_t> restarts{0};
  std::atomic<std::int64_t> host{0};
};
inline OwnJob own_job;

/// One of the workers that run the job's replicas, connected with the others. Its replicas are
/// threads of which one runs at a time and hands over where it waits for others (RunLock). A single
/// replica runs without one. While the object lives, the board shows how its replicas ended.
class Worker {
 public:
  /// Connects it with the others, who meet in `store` and share `memory`; CommError where they do
  /// not come.
  Worker(const LaunchOptions& options, const JobPlan& plan, std::int64_t index,
         const std::shared_ptr<comm::Store>& store,
         const std::shared_ptr<comm::HostMemory>& memory);

  /// The replicas of the job that this worker runs.
  [[nodiscard]] const Range& replicas() const noexcept { return replicas_; }

  /// Runs `function` as `replica`, one of its own, in the calling thread, with the axis bound.
  void run(std::int64_t replica, const std::function<void()>& function);

  /// Ends what its replicas wait for because one of the job's has failed: with `error` if that is a
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
  std::shared_ptr<watch::Recorder> recorder_;
  std::shared_ptr<comm::Cancellation> cancellation_ = std::make_shared<comm::Cancellation>();
  std::vector<std::unique_ptr<Environment>> places_;  // of its replicas, in order
};

/// Threads of replicas or workers. All are over when it is gone.
class RunningThreads : private NonCopyable {
 public:
  RunningThreads(const Range& indices, FirstFailure& failure,
                 const std::function<void(std::int64_t)>& body);
  ~RunningThreads();

  /// Waits until all are over, and calls `look` now and then. Once one has failed it waits for
  /// `grace` at most, and only until it is `enough`. Returns whether all are over.
  bool wait(
      std::chrono::milliseconds grace, const std::function<void()>& look = {},
      const std::function<bool()>& enough = [] { return false; });

 private:
  void end(std::int64_t count);

  FirstFailure& failure_;
  Mutex mutex_;
  Condition changed_;
  std::int64_t running_ LOCKSTEP_GUARDED_BY(mutex_);
  std::vector<std::thread> threads_;
};

/// Says on stderr what runs.
void announce(const LaunchOptions& options, const JobPlan& plan);

/// Calls LaunchOptions::after_failure, if there is one, and logs what it throws.
void tell_failure(const JobFailure& failure, const LaunchOptions& options);
/// Warns of a stall, and calls LaunchOptions::after_stall likewise.
void tell_stall(const std::string& warning, const LaunchOptions& options);

/// While this lives, this process waits for no reader of its stdout and stderr. The destructor
/// does, unless `status` is that of a stop.
struct UnreadOutput : private NonCopyable {
  /// With `keeps_stdout` stdout has prints of replicas, not progress: nothing is left out.
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
  int status = 0;  ///< with which the job ends
};

/// launch() with checked options, whose number of workers is set.
[[nodiscard]] int launch_processes(const std::function<void()>& function,
                                   const LaunchOptions& options, const LaunchCall& call);
[[nodiscard]] int launch_threads(const std::function<void()>& function,
                                 const LaunchOptions& options);

/// The longest delay before a restart.
inline constexpr std::chrono::milliseconds kLongestDelay{60'000};

}  // namespace lockstep::replicas
