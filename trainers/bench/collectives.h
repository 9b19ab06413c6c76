#pragma once

#include "trainers/bench/flags.h"

namespace lockstep::bench {

/// `bench collectives`: measures, prints each operation when it is done, and writes the files.
void run_collectives(const CollectivesOptions& options);

}  // namespace lockstep::bench
