#include "framework/optim/optimizer_options.h"

#include <algorithm>

#include "framework/base/range.h"
#include "framework/base/text.h"

namespace lockstep {
namespace {

auto group_of(const OptimizerOptions& options, const std::string& name) {
  return std::find_if(
      options.groups.begin(), options.groups.end(),
      [&](const ParameterGroup& group) { return matches_pattern(group.pattern, name); });
}

}  // namespace

ParameterSettings parameter_settings(const OptimizerOptions& options, const std::string& name) {
  const auto group = group_of(options, name);
  if (group == options.groups.end()) return {options.weight_decay, 1};
  return {group->weight_decay.value_or(options.weight_decay), group->lr_scale};
}

void check_groups(const OptimizerOptions& options, const std::vector<std::string>& names) {
  for (auto group = options.groups.begin(); group != options.groups.end(); ++group) {
    const auto matched = filtered(
        names, [&](const std::string& name) { return matches_pattern(group->pattern, name); });
    require(!matched.empty(), "optimizer.groups: no parameter matches the pattern '",
            group->pattern, "'; the parameters are ", listed(names));
    const bool holds = std::ranges::any_of(
        matched, [&](const std::string& name) { return group_of(options, name) == group; });
    require(holds, "optimizer.groups: earlier groups match all that the pattern '", group->pattern,
            "' does: ", listed(matched));
  }
}

}  // namespace lockstep
