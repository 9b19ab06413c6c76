#pragma once

#include <functional>

#include "trainers/config/config.h"

namespace lockstep {

/// Runs `work` in this process as a job of one replica, with the axis of `config` bound and its
/// math threads: parallel.threads_per_replica, or the host's cores. Only warnings and errors are
/// logged. Returns the exit status, as launch() does.
[[nodiscard]] int run_alone(const Config& config, const std::function<void()>& work);

}  // namespace lockstep
