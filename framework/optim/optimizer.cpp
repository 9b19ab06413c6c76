#include "framework/optim/optimizer.h"

#include <cmath>
#include <tuple>
#include <utility>

#include <torch/optim/adam.h>
#include <torch/optim/sgd.h>

#include "framework/base/errors.h"
#include "framework/base/text.h"

namespace lockstep {
namespace {

// LibTorch's optimizer behind ours.
template <typename TorchOptimizer>
class Wrapped : public Optimizer {
 public:
  template <typename TorchOptions>
  Wrapped(std::vector<at::Tensor> parameters, const TorchOptions& options)
      : optimizer_(std::move(parameters), options) {}

  void step() override { optimizer_.step(); }

 private:
  TorchOptimizer optimizer_;
};

std::string setting(const OptimizerOptions& options, const char* name) {
  return str("optimizer ", options.name, ": ", name);
}

void check_at_least_zero(const OptimizerOptions& options, const char* name, double value) {
  if (std::isfinite(value) && value >= 0) return;
  throw ValueError(
      str(setting(options, name), " must be a finite number of at least 0, not ", value));
}

void check_not_set(const OptimizerOptions& options, const char* name, bool is_default) {
  if (is_default) return;
  throw ValueError(str(setting(options, name), " is not an option of it"));
}

void check_parameters(const std::vector<at::Tensor>& parameters) {
  for (std::size_t i = 0; i < parameters.size(); ++i) {
    const at::Tensor& parameter = parameters[i];
    if (!parameter.defined() || !parameter.is_leaf() || !parameter.is_floating_point()) {
      throw ValueError(str("optimizer: parameter ", i, " of ", parameters.size(),
                           " must be a leaf tensor of a floating dtype"));
    }
  }
}

std::unique_ptr<Optimizer> make_sgd(const OptimizerOptions& options,
                                    std::vector<at::Tensor> parameters) {
  const OptimizerOptions defaults;
  check_not_set(options, "betas", options.betas == defaults.betas);
  check_not_set(options, "eps", options.eps == defaults.eps);
  check_at_least_zero(options, "momentum", options.momentum);
  if (options.nesterov && options.momentum == 0) {
    throw ValueError(str(setting(options, "nesterov"), " needs a momentum above 0"));
  }
  return std::make_unique<Wrapped<torch::optim::SGD>>(std::move(parameters),
                                                      torch::optim::SGDOptions(options.lr)
                                                          .momentum(options.momentum)
                                                          .nesterov(options.nesterov)
                                                          .weight_decay(options.weight_decay));
}

std::unique_ptr<Optimizer> make_adam(const OptimizerOptions& options,
                                     std::vector<at::Tensor> parameters) {
  check_not_set(options, "momentum", options.momentum == 0);
  check_not_set(options, "nesterov", !options.nesterov);
  check_at_least_zero(options, "eps", options.eps);
  for (const double beta : options.betas) {
    if (beta >= 0 && beta < 1) continue;
    throw ValueError(str(setting(options, "betas"), " must be at least 0 and below 1, not ", beta));
  }
  return std::make_unique<Wrapped<torch::optim::Adam>>(
      std::move(parameters), torch::optim::AdamOptions(options.lr)
                                 .betas(std::make_tuple(options.betas[0], options.betas[1]))
                                 .eps(options.eps)
                                 .weight_decay(options.weight_decay));
}

struct Registered {
  std::string name;
  std::unique_ptr<Optimizer> (*make)(const OptimizerOptions& options,
                                     std::vector<at::Tensor> parameters);
};

const std::vector<Registered>& registry() {
  static const std::vector<Registered> optimizers{
      {"sgd", make_sgd},
      {"adam", make_adam},
  };
  return optimizers;
}

}  // namespace

const std::vector<std::string>& optimizer_names() {
  static const std::vector<std::string> names = [] {
    std::vector<std::string> all;
    for (const Registered& optimizer : registry()) all.push_back(optimizer.name);
    return all;
  }();
  return names;
}

std::unique_ptr<Optimizer> make_optimizer(const OptimizerOptions& options,
                                          std::vector<at::Tensor> parameters) {
  for (const Registered& optimizer : registry()) {
    if (optimizer.name != options.name) continue;
    check_at_least_zero(options, "lr", options.lr);
    check_at_least_zero(options, "weight_decay", options.weight_decay);
    check_parameters(parameters);
    return optimizer.make(options, std::move(parameters));
  }
  throw ValueError(str("unknown optimizer '", options.name, "'",
                       did_you_mean(options.name, optimizer_names()), "; known are ",
                       join(optimizer_names())));
}

}  // namespace lockstep
