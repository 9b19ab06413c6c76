#pragma once

#include <chrono>
#include <cstdint>
#include <functional>
#include <string>
#include <vector>

#include "trainers/bench/measuring/crew.h"
#include "trainers/bench/measuring/progress_line.h"
#include "trainers/bench/reports/report.h"

namespace lockstep::bench {

/// How much to measure of a case.
struct Pace {
  double batch_seconds = 3e-3;        ///< a batch has as many calls as take so long, at least one
  std::int64_t repetitions = 0;       ///< batches; 0: as follows
  std::chrono::seconds case_time{2};  ///< until so much has passed,
  std::int64_t fewest = 5;            ///< at least so many,
  std::int64_t most = 25;             ///< at most so many
  /// Bytes that a host has sent so far; empty: nothing to count.
  std::function<std::int64_t()> sent_bytes = {};
};

/// Measures an operation on all systems. Each repetition runs one batch of every system in turn,
/// beginning with another system each time, so that other work on the machine disturbs all alike. A
/// sample is a batch's time divided by its calls. Before that each system's result is checked and
/// one batch is run. `amount` is ReplicaTask::prepare()'s.
[[nodiscard]] std::vector<Measurement> measure(const Crew& systems, const std::string& operation,
                                               std::int64_t amount, const Pace& pace);

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
