#pragma once

#include <string>

#include "trainers/bench/reports/report.h"

namespace lockstep::bench {

/// A number with three digits: "0.0123", "1.23", "12.3", "123", "1234".
[[nodiscard]] std::string digits_text(double value);

/// A duration in three digits: "3.02 us", "12.4 ms", "1.25 s".
[[nodiscard]] std::string time_text(double seconds);

/// The text above the tables: the machine, the systems and what was left out.
[[nodiscard]] std::string heading_text(const Heading& heading);

/// One operation on one number of replicas: times; bus bandwidth, with Lockstep's share of the
/// memory's bandwidth from 1 MiB on; the speed of each of Lockstep's modes relative to each peer.
[[nodiscard]] std::string result_text(const CollectivesReport& report,
                                      const OperationResult& result);

/// Each system's time, the memory that it reads in a second, and the speed of each of Lockstep's
/// systems relative to it.
[[nodiscard]] std::string vdot_text(const VdotReport& report);

/// One model on one number of replicas: steps with their parts; the speed of each of Lockstep's
/// modes relative to each peer.
[[nodiscard]] std::string result_text(const TrainingResult& result);

[[nodiscard]] std::string launches_text(const TrainingReport& report);

/// One folder: what saving and loading take, beside the limits; the speed of Lockstep relative to
/// each peer; loads by other numbers of replicas.
[[nodiscard]] std::string result_text(const CheckpointReport& report,
                                      const CheckpointResult& result);

/// One part: the time of each measurement, for each unit, and how many times the part's that is.
[[nodiscard]] std::string result_text(const PartResult& result);

}  // namespace lockstep::bench
