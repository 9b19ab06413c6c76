#pragma once

#include <vector>

#include "framework/replicas/worker_process.h"

namespace lockstep {

/// Watches the workers until all have ended: answers their stores, passes on their output, reaps
/// them. When one fails or a SIGINT or SIGTERM comes, ends the others, within 2 seconds, and says
/// on stderr what went wrong. Returns launch()'s status.
[[nodiscard]] int supervise(std::vector<WorkerProcess> workers);

}  // namespace lockstep
