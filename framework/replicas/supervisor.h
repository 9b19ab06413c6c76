#pragma once

#include <cstdint>
#include <vector>

#include "framework/replicas/host_links.h"
#include "framework/replicas/host_meeting.h"
#include "framework/replicas/launch.h"
#include "framework/replicas/stop_signals.h"
#include "framework/replicas/worker_process.h"
#include "framework/watch/board.h"
#include "framework/watch/recorder.h"

namespace lockstep::replicas {

/// Watches this host's workers until all have ended: answers their stores, passes on their output,
/// reaps them. When one fails or a signal of `stop` ends the job, ends the others by signals,
/// within 2 seconds, and says on stderr what went wrong. A job on several hosts ends when all have
/// ended; a failure or signal on any of them ends it here. Returns how it ended, without its text.
///
/// With `may_restart`, a job that is_lost starts again, unless a signal has come. Then this returns
/// once all of its processes are gone, however long that takes. Otherwise none is_lost.
///
/// Workers that wait for each other end with a Timeout by themselves. The supervisor ends the job
/// where they cannot do so: if all have been stopped for the timeout, or if one waits for others on
/// the `board` and has not checked its wait for that long. It warns of stalls on all hosts.
/// Replicas' `recorder` gets their pauses, and has what traces are made of and what
/// LaunchOptions::after_failure is told of run number `restarts`.
[[nodiscard]] Ending supervise(std::vector<WorkerProcess> workers, watch::Board& board,
                               watch::Recorder& recorder, Hosts& hosts,
                               const LaunchOptions& options, const StopSignals& stop,
                               std::int64_t restarts);

}  // namespace lockstep::replicas
