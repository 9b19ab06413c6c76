#pragma once

#include <string>

#include "trainers/bench/reports/report.h"

namespace lockstep::bench {

/// The machine, the systems and what was left out: what stands above the tables.
[[nodiscard]] std::string heading_text(const Heading& heading);

/// One operation on one number of replicas: times; bus bandwidth, with Lockstep's share of the
/// memory's bandwidth from 1 MiB on; how many times as fast as each peer each of Lockstep's ways
/// is.
[[nodiscard]] std::string result_text(const CollectivesReport& report,
                                      const OperationResult& result);

/// The time of each system, what it reads of memory a second, and how many times as fast as it each
/// of Lockstep's is.
[[nodiscard]] std::string vdot_text(const VdotReport& report);

/// One model on one number of replicas: steps with their parts; how many times as fast as each peer
/// each of Lockstep's ways is.
[[nodiscard]] std::string result_text(const TrainingResult& result);

[[nodiscard]] std::string launches_text(const TrainingReport& report);

}  // namespace lockstep::bench
