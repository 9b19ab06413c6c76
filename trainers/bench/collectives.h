#pragma once

#include <vector>

#include "trainers/bench/flags.h"
#include "trainers/bench/peers.h"

namespace lockstep::bench {

/// What can be measured here of what `options` asks for, Lockstep's systems first. ValueError for a
/// system that is not known, or that `options` names and this machine lacks.
[[nodiscard]] Contestants find_contestants(const CollectivesOptions& options);

/// `bench collectives`: measures, prints each operation when it is done, and writes the files.
void run_collectives(const CollectivesOptions& options);

}  // namespace lockstep::bench
