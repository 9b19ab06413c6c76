#pragma once

#include <string>

#include "trainers/bench/report.h"

namespace lockstep::bench {

/// The whole report, times in seconds, rates in bytes a second.
[[nodiscard]] std::string to_json(const CollectivesReport& report);

}  // namespace lockstep::bench
