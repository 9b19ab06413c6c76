#pragma once

#include <string>

#include "trainers/bench/reports/report.h"

namespace lockstep::bench {

/// Three digits: "0.0123", "1.23", "12.3", "123", "1234".
[[nodiscard]] std::string digits_text(double value);

/// A duration in three digits: "3.02 us", "12.4 ms", "1.25 s".
[[nodiscard]] std::string time_text(double seconds);

/// The text above the tables: the machine, the systems and what was left out.
[[nodiscard]] std::string heading_text(const Heading& heading);

/// Times, bus bandwidth, with Lockstep's share of the memory's from 1 MiB on, and how many times as
/// fast as each peer each of Lockstep's modes is.
[[nodiscard]] std::string result_text(const CollectivesReport& report,
                                      const OperationResult& result);

[[nodiscard]] std::string vdot_text(const VdotReport& report);

/// Steps with their parts, and what is compared with each peer.
[[nodiscard]] std::string result_text(const TrainingResult& result);

[[nodiscard]] std::string launches_text(const TrainingReport& report);
/// The memory of one model's systems over `steps` steps.
[[nodiscard]] std::string growth_text(const TrainingResult& result, std::int64_t steps);

/// What saving and loading take, beside the limits and each peer, and loads by other numbers of
/// replicas.
[[nodiscard]] std::string result_text(const CheckpointReport& report,
                                      const CheckpointResult& result);

/// The time of each measurement, for each unit, and how many times the part's that is.
[[nodiscard]] std::string result_text(const PartResult& result);

}  // namespace lockstep::bench
