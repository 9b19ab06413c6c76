#pragma once

#include <array>
#include <string>
#include <vector>

namespace lockstep {

/// Which optimizer and its numbers, as a config's `optimizer` section says them.
struct OptimizerOptions {
  std::string name = "sgd";
  double lr = 0.01;
  double momentum = 0.0;                    // sgd
  bool nesterov = false;                    // sgd, needs momentum
  double weight_decay = 0.0;                // sgd and adam: added to the gradient, times the value
  std::array<double, 2> betas{0.9, 0.999};  // adam
  double eps = 1e-8;                        // adam

  bool operator==(const OptimizerOptions&) const = default;
};

/// The names that make_optimizer (framework/optim/optimizer.h) knows.
[[nodiscard]] const std::vector<std::string>& optimizer_names();

}  // namespace lockstep
