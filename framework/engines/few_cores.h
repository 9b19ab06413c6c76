#pragma once

#include <cstdint>
#include <string>

#include "framework/engines/whereabouts.h"

namespace lockstep::engines {

/// Returns a warning if an engine gives a task fewer cores than it runs replicas at once, or a
/// single core: `usable` of the `of_host` cores of its host. "" if there is nothing to warn of.
[[nodiscard]] std::string few_cores_text(const Whereabouts& where, std::int64_t usable,
                                         std::int64_t of_host, std::int64_t replicas);

}  // namespace lockstep::engines
