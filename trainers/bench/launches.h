#pragma once

#include <cstdint>
#include <vector>

#include "trainers/bench/measure.h"
#include "trainers/bench/progress_line.h"
#include "trainers/bench/workers.h"
#include "trainers/bench/workplace.h"

namespace lockstep::bench {

/// The `train` binary beside this one, as a system whose program trains one step of the pmean
/// example and prints "step 1" when it is done.
[[nodiscard]] System train_system();

/// Seconds from starting each system's program to the line of its output that begins with "step 1",
/// in turn, `repetitions` times. Throws CommError if a program fails or ends in another result than
/// w = 2.625, the example's with 4 replicas.
[[nodiscard]] std::vector<Measurement> measure_launches(const Workplace& workplace,
                                                        const std::vector<System>& systems,
                                                        std::int64_t repetitions,
                                                        ProgressLine& progress);

inline constexpr std::int64_t kLaunchedReplicas = 4;

}  // namespace lockstep::bench
