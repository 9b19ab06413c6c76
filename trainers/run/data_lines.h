#pragma once

#include <string>
#include <vector>

#include "framework/data/data.h"
#include "trainers/config/config.h"

namespace lockstep {

/// What a run's source has decided, as describe() says it, and how many steps an epoch has, each
/// line after "data: ".
[[nodiscard]] std::vector<std::string> data_lines(const Config& config, const DataSets& data);

}  // namespace lockstep
