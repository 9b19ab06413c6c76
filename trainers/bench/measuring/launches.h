#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "trainers/bench/measuring/progress_line.h"
#include "trainers/bench/measuring/workplace.h"
#include "trainers/bench/reports/report.h"

namespace lockstep::bench {

/// What systems are launched for.
struct Launch {
  std::int64_t replicas = 1;
  std::string result;  ///< is somewhere in the output, or the launch has failed
};

/// For each system in turn, `repetitions` times: the seconds from starting its program to the line
/// of its output that begins with "step 1". Throws CommError if a program fails or lacks the
/// result.
[[nodiscard]] std::vector<Measurement> measure_launches(const Workplace& workplace,
                                                        const std::vector<System>& systems,
                                                        const Launch& launch,
                                                        std::int64_t repetitions,
                                                        const ProgressLine& progress);

}  // namespace lockstep::bench
