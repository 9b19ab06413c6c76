#pragma once

#include <filesystem>
#include <functional>
#include <string>
#include <vector>

#include "trainers/bench/flags.h"
#include "trainers/bench/peers/peers.h"

namespace lockstep::bench {

// What every measurement begins and ends with.

/// The systems that --systems asks for, of `own` and then of `peers` (peers.h). ValueError for a
/// name that is not known, or a peer that is named and that this machine lacks.
[[nodiscard]] Contestants find_contestants(const Workplace& workplace, const Options& options,
                                           const std::vector<System>& own,
                                           const std::vector<std::string>& peers);

/// What stands above a report on these systems: they, and the machine as it is now.
[[nodiscard]] Heading heading_of(const std::vector<System>& systems,
                                 const std::vector<LeftOut>& left_out);

/// Makes `path` a file of what `make` returns; nothing where it is empty. Error if it cannot be
/// written.
void write_file(const std::filesystem::path& path, const std::function<std::string()>& make);

}  // namespace lockstep::bench
