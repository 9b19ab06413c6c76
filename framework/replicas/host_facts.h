#pragma once

#include <map>
#include <string>

#include "framework/replicas/launch.h"

namespace lockstep::replicas {

/// By name, what must be the same on all hosts of a job.
using Facts = std::map<std::string, std::string>;
[[nodiscard]] Facts facts_of(const LaunchOptions& options);

/// "LibTorch is 2.6.0, on host 0 it is 1.13.1; …"; "" if `theirs` are those of host 0.
[[nodiscard]] std::string differences(const Facts& theirs, const Facts& first);

}  // namespace lockstep::replicas
