#pragma once

#include <functional>
#include <memory>
#include <string>
#include <utility>

#include "framework/keys/choice.h"
#include "framework/optim/optimizer.h"
#include "framework/optim/optimizer_options.h"

namespace lockstep {

/// An optimizer that a config can name, with its options' keys.
struct OptimizerKind : keys::ChoiceIn<OptimizerOptions> {
  std::function<std::unique_ptr<Optimizer>(const OptimizerOptions& options)> make;
};

/// An OptimizerKind from two functions of its options, which OptimizerOptions::own holds. `make`
/// gets what the keys' rules let pass.
template <typename Options>
[[nodiscard]] OptimizerKind optimizer_kind(
    std::string name, std::string help, keys::ConfigKeys (*keys)(Options& options),
    std::unique_ptr<Optimizer> (*make)(const Options& options)) {
  return {keys::own_choice<OptimizerOptions>(
              keys::choice<Options>(std::move(name), std::move(help), keys)),
          [make](const OptimizerOptions& options) {
            return make(options.own.of<Options>(options.name));
          }};
}

/// An OptimizerKind without options of its own.
[[nodiscard]] inline OptimizerKind optimizer_kind(
    std::string name, std::string help,
    std::function<std::unique_ptr<Optimizer>(const OptimizerOptions& options)> make) {
  return {keys::own_choice<OptimizerOptions>(keys::choice(std::move(name), std::move(help))),
          std::move(make)};
}

/// Lets configs and make_optimizer() name an optimizer. Before they are used, for one thread: first
/// thing in main(). ValueError for a name that is there already.
void register_optimizer(OptimizerKind kind);

/// All optimizers that are known.
[[nodiscard]] const keys::Registry<OptimizerKind>& optimizer_registry();

/// A config's section `optimizer`, with the keys of all optimizers that are known.
[[nodiscard]] keys::Section optimizer_section(OptimizerOptions& options);

/// The optimizer that `options` name; those not registered have torch.optim's formulas. Throws
/// ValueError for an unknown name, for values that optimizer_section() would refuse, and for an
/// option that is set but that this optimizer doesn't have.
[[nodiscard]] std::unique_ptr<Optimizer> make_optimizer(const OptimizerOptions& options);

/// As torch.optim.RMSprop has them.
struct RMSpropOptions {
  double alpha = 0.99;  ///< decay of the mean square, and of the mean
  double eps = 1e-8;
  double momentum = 0.0;
  bool centered = false;  ///< divide by the root of the variance
};

/// As torch.optim.Adagrad has them.
struct AdagradOptions {
  double lr_decay = 0.0;
  double initial_accumulator_value = 0.0;
  double eps = 1e-10;
};

}  // namespace lockstep
