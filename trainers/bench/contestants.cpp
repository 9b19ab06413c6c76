#include "trainers/bench/contestants.h"

#include <algorithm>
#include <cstddef>

#include "framework/base/errors.h"
#include "framework/base/text.h"
#include "trainers/bench/peers.h"

namespace lockstep::bench {

std::vector<SystemFacts> facts_of(const std::vector<System>& systems) {
  std::vector<SystemFacts> facts;
  for (const System& system : systems) facts.push_back({system.label, system.version, system.own});
  return facts;
}

Contestants find_contestants(
    const Workplace& workplace, const CommonOptions& options, const std::vector<std::string>& own,
    const std::function<void(const std::string& name, std::vector<System>& systems)>& add_own,
    const std::vector<std::string>& peers) {
  auto names = own;
  names.insert(names.end(), peers.begin(), peers.end());
  const auto wanted = options.systems.empty() ? names : options.systems;
  const auto contains = [](const std::vector<std::string>& all, const std::string& name) {
    return std::find(all.begin(), all.end(), name) != all.end();
  };
  for (const std::string& name : wanted) {
    if (contains(names, name)) continue;
    throw ValueError(str("--systems: unknown system '", name, "'", did_you_mean(name, names),
                         "; there are ", join(names)));
  }
  Contestants found;
  for (const std::string& name : own) {
    if (contains(wanted, name)) add_own(name, found.systems);
  }
  for (const std::string& name : peers) {
    if (!contains(wanted, name)) continue;
    const std::size_t before = found.systems.size();
    add_peer(workplace, name, options.pythons, found);
    if (found.systems.size() == before && !options.systems.empty()) {
      throw ValueError(
          str("--systems: ", name, " cannot be measured here: ", found.left_out.back().reason));
    }
  }
  return found;
}

}  // namespace lockstep::bench
