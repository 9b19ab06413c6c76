#pragma once

#include <string>

#include "trainers/bench/reports/report.h"

namespace lockstep::bench {

/// The whole report, times in seconds, rates in bytes a second.
[[nodiscard]] std::string to_json(const CollectivesReport& report);
[[nodiscard]] std::string to_json(const VdotReport& report);
[[nodiscard]] std::string to_json(const TrainingReport& report);
[[nodiscard]] std::string to_json(const CheckpointReport& report);
[[nodiscard]] std::string to_json(const PartsReport& report);

}  // namespace lockstep::bench
