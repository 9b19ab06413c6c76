#pragma once

#include <chrono>
#include <vector>

#include "framework/comm/store.h"
#include "framework/replicas/running_job.h"
#include "framework/replicas/stop_signals.h"
#include "framework/replicas/worker_process.h"
#include "framework/watch/board.h"

namespace lockstep::replicas {

/// How a job ended.
struct JobEnd {
  int status;         ///< launch()'s
  bool starts_again;  ///< whether it lost a replica and may be started again
};

/// Watches the workers until all have ended: answers their stores, passes on their output, reaps
/// them. When one fails or a signal of `stop` ends the job, ends the others by signals, within 2
/// seconds, and says on stderr what went wrong.
///
/// With `may_restart`, a job that has lost a replica starts again, unless a signal has come. Then
/// this function returns once all of its processes are gone, however long that takes.
///
/// `store` answers the workers. Where `job` has workers on other hosts, too, it ends when all have
/// ended, and a failure or signal on any host ends it on this one.
///
/// Workers that wait for each other end with a Timeout by themselves. The supervisor ends the job
/// where they cannot do so: if all have been stopped for `timeout`, or if one waits for others on
/// the `board` and has not checked its wait for that long. On all hosts it warns of replicas that
/// wait longer than `stall_warning`; 0: no warning.
[[nodiscard]] JobEnd supervise(std::vector<WorkerProcess> workers, watch::Board& board,
                               std::chrono::milliseconds timeout,
                               std::chrono::milliseconds stall_warning, const StopSignals& stop,
                               comm::StoreServer& store, RunningJob& job, bool may_restart);

}  // namespace lockstep::replicas
