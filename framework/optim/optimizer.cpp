#include "framework/optim/optimizer.h"

#include <cmath>
#include <limits>

#include "framework/base/errors.h"
#include "framework/base/text.h"
#include "framework/optim/update.h"

namespace lockstep {
namespace {

std::string setting(const OptimizerOptions& options, const std::string& name) {
  return lockstep::str("optimizer ", options.name, ": ", name);
}

void check_at_least_zero(const OptimizerOptions& options, const std::string& name, double value) {
  if (std::isfinite(value) && value >= 0) return;
  throw ValueError(
      lockstep::str(setting(options, name), " must be a finite number of at least 0, not ", value));
}

void check_not_set(const OptimizerOptions& options, const char* name, bool is_default) {
  if (is_default) return;
  throw ValueError(lockstep::str(setting(options, name), " is not an option of it"));
}

// The power by squaring, whose bits do not depend on the C library, as those of std::pow do.
double power(double base, std::int64_t exponent) {
  double result = 1;
  for (; exponent > 0; exponent /= 2, base *= base) {
    if (exponent % 2 == 1) result *= base;
  }
  return result;
}

// An optimizer with one of the kernels' rules.
class FusedOptimizer : public Optimizer {
 public:
  void update(const OptimizerSlice& slice, const UpdateSettings& settings) const final {
    check_slice(slice, state_tensors());
    if (settings.step < 1) {
      throw ValueError(
          lockstep::str("optimizer: steps are counted from 1, this is step ", settings.step));
    }
    if (settings.clip_value && !(*settings.clip_value > 0)) {
      throw ValueError(
          lockstep::str("optimizer: clip_value must be above 0, not ", *settings.clip_value));
    }
    UpdateNumbers numbers{};
    numbers.gradient_scale = settings.gradient_scale;
    numbers.clip_value = settings.clip_value.value_or(std::numeric_limits<double>::infinity());
    numbers.weight_decay = settings.weight_decay;
    numbers.lr = settings.lr;
    complete(numbers, settings);
    run_update(slice, rule(), numbers);
  }

 private:
  [[nodiscard]] virtual UpdateRule rule() const = 0;
  virtual void complete(UpdateNumbers& numbers, const UpdateSettings& settings) const = 0;
};

class Sgd final : public FusedOptimizer {
 public:
  explicit Sgd(const OptimizerOptions& options)
      : momentum_(options.momentum), nesterov_(options.nesterov) {
    if (momentum_ > 0) names_ = {"momentum_buffer"};
  }

  [[nodiscard]] const std::vector<std::string>& state_names() const override { return names_; }

 private:
  [[nodiscard]] UpdateRule rule() const override {
    return momentum_ > 0 ? &ElementKernels::momentum : &ElementKernels::sgd;
  }

  void complete(UpdateNumbers& numbers, const UpdateSettings&) const override {
    numbers.momentum = momentum_;
    numbers.of_g = nesterov_ ? 1 : 0;
    numbers.of_buffer = nesterov_ ? momentum_ : 1;
  }

  double momentum_;
  bool nesterov_;
  std::vector<std::string> names_;
};

class Adam final : public FusedOptimizer {
 public:
  enum class Decay { gradient, parameter };

  Adam(const OptimizerOptions& options, Decay decay)
      : betas_(options.betas), eps_(options.eps), decay_(decay) {}

  [[nodiscard]] const std::vector<std::string>& state_names() const override { return names_; }

 private:
  [[nodiscard]] UpdateRule rule() const override { return &ElementKernels::adam; }

  void complete(UpdateNumbers& numbers, const UpdateSettings& settings) const override {
    numbers.beta1 = betas_[0];
    numbers.beta2 = betas_[1];
    numbers.eps = eps_;
    numbers.keep = 1;
    if (decay_ == Decay::parameter) {
      numbers.keep = 1 - settings.lr * settings.weight_decay;
      numbers.weight_decay = 0;
    }
    numbers.lr = settings.lr / (1 - power(betas_[0], settings.step));
    numbers.root_scale = 1 / std::sqrt(1 - power(betas_[1], settings.step));
  }

  std::array<double, 2> betas_;
  double eps_;
  Decay decay_;
  std::vector<std::string> names_{"exp_avg", "exp_avg_sq"};
};

std::unique_ptr<Optimizer> make_sgd(const OptimizerOptions& options) {
  const OptimizerOptions defaults;
  check_not_set(options, "betas", options.betas == defaults.betas);
  check_not_set(options, "eps", options.eps == defaults.eps);
  check_at_least_zero(options, "momentum", options.momentum);
  if (options.nesterov && options.momentum == 0) {
    throw ValueError(lockstep::str(setting(options, "nesterov"), " needs a momentum above 0"));
  }
  return std::make_unique<Sgd>(options);
}

template <Adam::Decay decay>
std::unique_ptr<Optimizer> make_adam(const OptimizerOptions& options) {
  check_not_set(options, "momentum", options.momentum == 0);
  check_not_set(options, "nesterov", !options.nesterov);
  check_at_least_zero(options, "eps", options.eps);
  for (const double beta : options.betas) {
    if (beta >= 0 && beta < 1) continue;
    throw ValueError(
        lockstep::str(setting(options, "betas"), " must be at least 0 and below 1, not ", beta));
  }
  return std::make_unique<Adam>(options, decay);
}

struct Registered {
  std::string name;
  std::unique_ptr<Optimizer> (*make)(const OptimizerOptions& options);
};

const std::vector<Registered>& registry() {
  static const std::vector<Registered> optimizers{
      {"sgd", make_sgd},
      {"adam", make_adam<Adam::Decay::gradient>},
      {"adamw", make_adam<Adam::Decay::parameter>},
  };
  return optimizers;
}

void check_common(const OptimizerOptions& options) {
  check_at_least_zero(options, "lr", options.lr);
  check_at_least_zero(options, "weight_decay", options.weight_decay);
  for (const ParameterGroup& group : options.groups) {
    const std::string name = lockstep::str("group '", group.pattern, "': ");
    check_at_least_zero(options, name + "weight_decay", group.weight_decay.value_or(0));
    check_at_least_zero(options, name + "lr_scale", group.lr_scale);
  }
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

std::unique_ptr<Optimizer> make_optimizer(const OptimizerOptions& options) {
  for (const Registered& optimizer : registry()) {
    if (optimizer.name != options.name) continue;
    check_common(options);
    return optimizer.make(options);
  }
  throw ValueError(lockstep::str("unknown optimizer '", options.name, "'",
                                 did_you_mean(options.name, optimizer_names()), "; known are ",
                                 join(optimizer_names())));
}

}  // namespace lockstep
