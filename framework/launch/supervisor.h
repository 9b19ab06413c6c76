#pragma once

#include <cstdint>
#include <vector>

#include "framework/calls/call_table.h"
#include "framework/launch/host_links.h"
#include "framework/launch/host_meeting.h"
#include "framework/launch/launch.h"
#include "framework/launch/stop_signals.h"
#include "framework/launch/worker_process.h"
#include "framework/timeline/recorder.h"

namespace lockstep::launcher {

/// Watches this host's workers until all have ended: answers their stores, passes on their output,
/// reaps them. When a worker fails or a signal of `stop` ends the job, ends the others by signals,
/// within 2 seconds, and says the cause on stderr. A job on several hosts ends when all have ended;
/// a failure or signal on any of them ends it here. Returns how the job ended, without the text.
///
/// If a job that is_lost may start again (`restarts` is less than options.max_restarts, and no
/// signal has come), this returns once all of its processes are gone, however long that takes.
/// Otherwise the result's is_lost is false.
///
/// Workers that wait for each other end with a Timeout by themselves. The supervisor ends the job
/// if they can't: if all have been stopped for the timeout, or if one waits for others in the
/// `table` and has not checked its wait for that long. It warns of stalls on all hosts. `recorder`
/// gets pauses, and has the data for traces and for after_failure. `restarts` is the number of this
/// run.
[[nodiscard]] Ending supervise(std::vector<WorkerProcess> workers, calls::CallTable& table,
                               timeline::Recorder& recorder, Hosts& hosts,
                               const LaunchOptions& options, const StopSignals& stop,
                               std::int64_t restarts);

}  // namespace lockstep::launcher
