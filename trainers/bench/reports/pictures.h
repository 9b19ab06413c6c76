#pragma once

#include "trainers/bench/reports/report.h"
#include "trainers/charts/chart.h"

namespace lockstep::bench {

/// For each operation on each number of replicas two panels, time a call and bus bandwidth over
/// size, a line a system, dashed for peers.
[[nodiscard]] charts::Picture picture_of(const CollectivesReport& report);

/// For each model on each number of replicas a panel with a bar a system, the parts of its step one
/// behind the other (peers' fainter), and the floor; and one of the launches.
[[nodiscard]] charts::Picture picture_of(const TrainingReport& report);

}  // namespace lockstep::bench
