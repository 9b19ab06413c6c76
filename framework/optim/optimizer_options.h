#pragma once

#include <array>
#include <optional>
#include <span>
#include <string>
#include <vector>

namespace lockstep {

/// What holds for the parameters that a pattern names.
struct ParameterGroup {
  std::string pattern;  ///< a shell's ("*.bias") for the whole name; * takes dots too
  std::optional<double> weight_decay = {};  ///< none: the optimizer's
  double lr_scale = 1;                      ///< times the step's learning rate

  bool operator==(const ParameterGroup&) const = default;
};

/// Which optimizer and its numbers, as a config's `optimizer` section says them.
struct OptimizerOptions {
  std::string name = "sgd";
  double lr = 0.01;
  double momentum = 0.0;  ///< sgd
  bool nesterov = false;  ///< sgd, needs momentum
  /// sgd and adam: times the parameter, added to the gradient; adamw: a part of the parameter that
  /// is taken off beside the update, times lr.
  double weight_decay = 0.0;
  std::array<double, 2> betas{0.9, 0.999};  ///< adam, adamw
  double eps = 1e-8;                        ///< adam, adamw
  std::vector<ParameterGroup> groups = {};  ///< the first that names a parameter holds for it

  bool operator==(const OptimizerOptions&) const = default;
};

/// The names that make_optimizer (framework/optim/optimizer.h) knows.
[[nodiscard]] const std::vector<std::string>& optimizer_names();

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
