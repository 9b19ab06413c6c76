#pragma once

#include <functional>
#include <string>
#include <vector>

#include "trainers/bench/flags.h"
#include "trainers/bench/peers.h"
#include "trainers/bench/report.h"
#include "trainers/bench/workers.h"
#include "trainers/bench/workplace.h"

namespace lockstep::bench {

/// Lockstep's systems first. ValueError for a system that is not known, or that `options` names and
/// this machine lacks.
[[nodiscard]] Contestants find_contestants(const CollectivesOptions& options);

/// Measures everything that `options` asks for. `done` is called with the report so far, each time
/// that one operation on one number of replicas is finished: the report's last result.
[[nodiscard]] CollectivesReport measure_collectives(
    const Workplace& workplace, const CollectivesOptions& options, const Contestants& contestants,
    const std::function<void(const CollectivesReport& report)>& done);

/// `bench collectives`: measures, prints, writes the files.
void run_collectives(const CollectivesOptions& options);

}  // namespace lockstep::bench
