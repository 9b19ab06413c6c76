#pragma once

#include <array>
#include <optional>
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

}  // namespace lockstep
