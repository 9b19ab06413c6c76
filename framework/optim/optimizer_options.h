#pragma once

#include <array>
#include <optional>
#include <string>
#include <vector>

#include "framework/keys/choice.h"

namespace lockstep {

/// Options for the parameters that match a pattern.
struct ParameterGroup {
  std::string pattern;  ///< a shell's ("*.bias") for the whole name; * takes dots too
  std::optional<double> weight_decay = {};  ///< none: the optimizer's
  double lr_scale = 1;                      ///< times the step's learning rate

  bool operator==(const ParameterGroup&) const = default;
};

/// Which optimizer and its numbers, as a config's `optimizer` section says them.
struct OptimizerOptions {
  std::string name = "sgd";  ///< of optimizer_registry() (optimizers.h)
  double lr = 0.01;
  double momentum = 0.0;   ///< sgd
  double dampening = 0.0;  ///< sgd: 1 - dampening of a gradient is added to the momentum
  bool nesterov = false;   ///< sgd, needs momentum and no dampening
  /// adamw: lr * weight_decay * parameter is subtracted beside the update. Others of torch.optim:
  /// weight_decay * parameter is added to the gradient.
  double weight_decay = 0.0;
  std::array<double, 2> betas{0.9, 0.999};  ///< adam, adamw
  double eps = 1e-8;                        ///< adam, adamw
  bool amsgrad = false;                     ///< adam, adamw: divide by the largest mean square yet
  std::vector<ParameterGroup> groups = {};  ///< the first that names a parameter holds for it
  /// Of all other optimizers: `options.own.of<RMSpropOptions>("rmsprop").alpha = 0.9`.
  keys::ChoiceOptions own = {};
};

/// Options that hold for one parameter.
struct ParameterSettings {
  double weight_decay;
  double lr_scale;

  bool operator==(const ParameterSettings&) const = default;
};

/// The settings of the parameter called `name`: from the first group whose pattern matches it,
/// or else from the options themselves.
[[nodiscard]] ParameterSettings parameter_settings(const OptimizerOptions& options,
                                                   const std::string& name);

/// Throws ValueError if one of the options' groups holds for none of the parameters called `names`.
/// It says whether the pattern matches none, or earlier groups take all matches.
void check_groups(const OptimizerOptions& options, const std::vector<std::string>& names);

}  // namespace lockstep
