#pragma once

#include <string>
#include <vector>

#include "trainers/bench/flags.h"
#include "trainers/bench/peers/peers.h"

namespace lockstep::bench {

// The beginning and the end of every measurement.

/// The systems that --systems asks for, first of `own` and then of `peers` (peers.h). ValueError
/// for an unknown name, or for a named peer that this machine lacks.
[[nodiscard]] Contestants find_contestants(const Workplace& workplace, const Options& options,
                                           const std::vector<System>& own,
                                           const std::vector<std::string>& peers);

/// The heading of a report on these systems, with the machine as it is now. Prints it.
[[nodiscard]] Heading begin_report(const std::vector<System>& systems,
                                   const std::vector<LeftOut>& left_out);

/// The binary `bench`: measures what its flags say, or is a worker of itself. Returns the exit
/// status, and prints errors.
[[nodiscard]] int bench_main(int argc, const char* const* argv);

}  // namespace lockstep::bench
