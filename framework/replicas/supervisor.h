#pragma once

#include <chrono>
#include <vector>

#include "framework/replicas/worker_process.h"
#include "framework/watch/board.h"

namespace lockstep {

/// Watches the workers until all have ended: answers their stores, passes on their output, reaps
/// them. When one fails or a SIGINT or SIGTERM comes, ends the others, within 2 seconds, and says
/// on stderr what went wrong. Returns launch()'s status.
///
/// Workers that wait for each other end with a Timeout by themselves. Those that cannot are ended
/// here: where all have been stopped for `timeout`, or where one of them waits on their `board` for
/// others and has not looked after its wait for so long.
[[nodiscard]] int supervise(std::vector<WorkerProcess> workers, const Board& board,
                            std::chrono::milliseconds timeout);

}  // namespace lockstep
