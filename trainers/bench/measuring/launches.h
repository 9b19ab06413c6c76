#pragma once

#include <cstdint>
#include <vector>

#include "trainers/bench/measuring/progress_line.h"
#include "trainers/bench/measuring/workplace.h"
#include "trainers/bench/reports/report.h"

namespace lockstep::bench {

inline constexpr std::int64_t kLaunchedReplicas = 4;

/// For each system in turn, `repetitions` times: the seconds from starting its program to the line
/// of its output that begins with "step 1". Throws CommError if a program fails or its result is
/// not w = 2.625, the pmean example's with 4 replicas.
[[nodiscard]] std::vector<Measurement> measure_launches(const Workplace& workplace,
                                                        const std::vector<System>& systems,
                                                        std::int64_t repetitions,
                                                        const ProgressLine& progress);

}  // namespace lockstep::bench
