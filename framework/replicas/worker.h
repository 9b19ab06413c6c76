#pragma once

#include <chrono>
#include <cstdint>
#include <exception>
#include <functional>
#include <memory>
#include <string>
#include <vector>

#include <ATen/ThreadLocalState.h>

#include "framework/axes/environment.h"
#include "framework/base/shard.h"
#include "framework/comm/communicator.h"
#include "framework/comm/run_lock.h"
#include "framework/comm/shared/host_memory.h"
#include "framework/comm/store.h"
#include "framework/replicas/launch.h"

namespace lockstep {

/// How long a replica waits for those of other workers, all of which run one after another.
[[nodiscard]] std::chrono::milliseconds patience_of(const LaunchOptions& options);

/// One of the workers that run a launched job's replicas, each its own, connected with the others.
/// Its replicas are threads of which one runs at a time and hands over where it waits for others
/// (RunLock); one that has a single replica runs it without one. How they ended is on the board
/// while the object is there.
class Worker {
 public:
  /// Connects it. All workers meet in `store` and share `memory`, whose members they are. `report`
  /// is where processes that replicas have forked send_report(). Throws CommError where others do
  /// not come.
  Worker(const LaunchOptions& options, std::int64_t index, const std::shared_ptr<Store>& store,
         const std::shared_ptr<HostMemory>& memory, int report);

  /// Of the job.
  [[nodiscard]] const Shard& replicas() const noexcept { return replicas_; }

  /// Runs `function` as `replica`, one of its own, in the calling thread, with the axis bound.
  void run(std::int64_t replica, const std::function<void()>& function);

  /// Ends what its replicas wait for because one of the job's has failed: with `error` if that is a
  /// CollectiveMismatch, since all are out of step then, otherwise with Aborted(reason). Any
  /// thread.
  void end(const std::exception_ptr& error, const std::string& reason);

  /// Waits for the other workers, so that nobody closes connections that another still needs.
  void part();

 private:
  Shard replicas_;
  int report_;
  std::int64_t math_threads_;
  RunLock run_lock_;
  at::ThreadLocalState callers_state_;
  std::shared_ptr<Communicator> communicator_;
  std::shared_ptr<LocalReplicas> local_;
  std::shared_ptr<Cancellation> cancellation_ = std::make_shared<Cancellation>();
  std::vector<std::unique_ptr<Environment>> places_;  // by replica, its first one's first
};

}  // namespace lockstep
