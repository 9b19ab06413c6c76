#pragma once

#include "trainers/bench/reports/report.h"
#include "trainers/charts/chart.h"

namespace lockstep::bench {

/// For each operation and number of replicas two panels: time of a call and bus bandwidth, over
/// size. One line for each system, dashed for peers.
[[nodiscard]] charts::Picture picture_of(const CollectivesReport& report);

/// For each model and number of replicas a panel with a bar for each system: the parts of its step
/// end to end (peers' fainter), and the floor. Another panel shows the launches.
[[nodiscard]] charts::Picture picture_of(const TrainingReport& report);

}  // namespace lockstep::bench
