#pragma once

#include <span>
#include <string>

#include "framework/optim/optimizer_options.h"

namespace lockstep {

/// What holds for one parameter.
struct ParameterSettings {
  double weight_decay;
  double lr_scale;

  bool operator==(const ParameterSettings&) const = default;
};

/// Those of the parameter called `name`: of the first of the options' groups whose pattern it
/// matches (as fnmatch(3) has it, without flags), or else of the options themselves.
[[nodiscard]] ParameterSettings parameter_settings(const OptimizerOptions& options,
                                                   const std::string& name);

/// Throws ValueError if one of the options' groups holds for none of the parameters called `names`,
/// and says whether its pattern matches none or earlier groups take all that it matches.
void check_groups(const OptimizerOptions& options, std::span<const std::string> names);

}  // namespace lockstep
