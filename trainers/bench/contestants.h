#pragma once

#include <functional>
#include <string>
#include <vector>

#include "trainers/bench/flags.h"
#include "trainers/bench/report.h"
#include "trainers/bench/workers.h"
#include "trainers/bench/workplace.h"

namespace lockstep::bench {

/// What can be measured here of what was asked for, and what cannot.
struct Contestants {
  std::vector<System> systems;
  std::vector<LeftOut> left_out;
};

/// The systems as a report has them.
[[nodiscard]] std::vector<SystemFacts> facts_of(const std::vector<System>& systems);

/// The systems that `options` asks for of those named `own`, which `add_own` adds, and `peers`
/// (peers.h), in this order. ValueError for a name that is not known, or a peer that `options`
/// names and this machine lacks. Peers are asked for their versions, which may take seconds.
[[nodiscard]] Contestants find_contestants(
    const Workplace& workplace, const CommonOptions& options, const std::vector<std::string>& own,
    const std::function<void(const std::string& name, std::vector<System>& systems)>& add_own,
    const std::vector<std::string>& peers);

}  // namespace lockstep::bench
