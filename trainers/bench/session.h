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

/// The heading of a report on these systems, with the machine as it is now.
[[nodiscard]] Heading heading_of(const std::vector<System>& systems,
                                 const std::vector<LeftOut>& left_out);

/// ValueError, before anything is measured, if --plot is given and this machine cannot draw.
void check_plot(const Workplace& workplace, const Options& options);

/// Writes a report to the file of --json and draws it in that of --plot. Error if one cannot be
/// written.
void write_results(const Workplace& workplace, const Options& options, const std::string& json);

}  // namespace lockstep::bench
