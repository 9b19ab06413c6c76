#include "framework/optim/optimizers.h"

#include <cmath>
#include <iterator>
#include <vector>

#include "framework/base/text.h"
#include "framework/optim/built_in_optimizers.h"

namespace lockstep {
namespace {

void check_at_least_zero(const OptimizerOptions& options, const std::string& name, double value) {
  require(std::isfinite(value) && value >= 0, "optimizer ", options.name, ": ", name,
          " must be a finite number of at least 0, not ", value);
}

// What every optimizer has.
void check_common(const OptimizerOptions& options) {
  check_at_least_zero(options, "lr", options.lr);
  check_at_least_zero(options, "weight_decay", options.weight_decay);
  for (const ParameterGroup& group : options.groups) {
    const std::string name = str("group '", group.pattern, "': ");
    check_at_least_zero(options, name + "weight_decay", group.weight_decay.value_or(0));
    check_at_least_zero(options, name + "lr_scale", group.lr_scale);
  }
}

// What SGD has, or Adam: others find their options in OptimizerOptions::own.
void check_special(const OptimizerOptions& options) {
  const OptimizerOptions defaults;
  const bool is_sgd = options.name == "sgd";
  const bool is_adam = options.name == "adam" || options.name == "adamw";
  const auto check = [&](bool holds, const auto&... rule) {
    require(holds, "optimizer ", options.name, ": ", rule...);
  };
  const auto check_is_option = [&](const char* name, bool has_it, bool is_default) {
    check(has_it || is_default, name, " is not an option of it");
  };
  check_is_option("momentum", is_sgd, options.momentum == defaults.momentum);
  check_is_option("dampening", is_sgd, options.dampening == defaults.dampening);
  check_is_option("nesterov", is_sgd, options.nesterov == defaults.nesterov);
  check_is_option("betas", is_adam, options.betas == defaults.betas);
  check_is_option("eps", is_adam, options.eps == defaults.eps);
  check_is_option("amsgrad", is_adam, options.amsgrad == defaults.amsgrad);
  check_at_least_zero(options, "momentum", options.momentum);
  check(options.dampening >= 0 && options.dampening <= 1, "dampening must be from 0 to 1, not ",
        options.dampening);
  check(options.dampening == 0 || options.momentum != 0, "dampening needs a momentum above 0");
  check(!options.nesterov || options.momentum != 0, "nesterov needs a momentum above 0");
  check(!options.nesterov || options.dampening == 0, "nesterov needs a dampening of 0");
  check_at_least_zero(options, "eps", options.eps);
  for (const double beta : options.betas) {
    check(beta >= 0 && beta < 1, "betas must be at least 0 and below 1, not ", beta);
  }
}

keys::Registry<OptimizerKind>& known_optimizers() {
  static keys::Registry<OptimizerKind> kinds("optimizer", [] {
    std::vector<OptimizerKind> all = optim::fused_optimizers();
    std::ranges::move(optim::torch_optimizers(), std::back_inserter(all));
    return all;
  }());
  return kinds;
}

}  // namespace

void register_optimizer(OptimizerKind kind) {
  known_optimizers().add(std::move(kind));
}

const keys::Registry<OptimizerKind>& optimizer_registry() {
  return known_optimizers();
}

std::unique_ptr<Optimizer> make_optimizer(const OptimizerOptions& options) {
  const OptimizerKind& kind = known_optimizers().at(options.name);
  check_common(options);
  check_special(options);
  return kind.make(options);
}

}  // namespace lockstep
