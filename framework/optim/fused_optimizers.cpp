#include <algorithm>
#include <cmath>
#include <functional>
#include <limits>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "framework/optim/built_in_optimizers.h"
#include "framework/optim/optimizer_kernels.h"

namespace lockstep::optim {
namespace {

// The power by squaring, whose bits do not depend on the C library, as those of std::pow do.
double power(double base, std::int64_t exponent) {
  double result = 1;
  for (; exponent > 0; exponent /= 2, base *= base) {
    if (exponent % 2 == 1) result *= base;
  }
  return result;
}

// One of the kernels' rules, for any type of element.
using Rule = ElementKernels::Update ElementKernels::*;

void run_rule(Rule rule, const OptimizerSlice& slice, const UpdateNumbers& numbers) {
  // With a rounded copy a part at a time, so that it is made of values that are in a near cache.
  constexpr std::int64_t kRoundedAtOnce = 16'384;
  const OptimizerKernels& all = optimizer_kernels().back();
  const ElementKernels& kernels =
      slice.parameter.scalar_type() == at::kDouble ? all.float64 : all.float32;
  const std::int64_t count = slice.parameter.numel();
  const std::int64_t at_once = slice.rounded.defined() ? kRoundedAtOnce : count;
  for (std::int64_t begin = 0; begin < count; begin += at_once) {
    const auto from_begin = [&](const at::Tensor& tensor) {
      return static_cast<std::byte*>(tensor.data_ptr()) +
             static_cast<std::size_t>(begin) * tensor.itemsize();
    };
    const std::int64_t size = std::min(at_once, count - begin);
    UpdateBuffers buffers{.parameter = from_begin(slice.parameter),
                          .gradient = from_begin(slice.gradient),
                          .state = {},
                          .count = static_cast<std::size_t>(size)};
    for (std::size_t i = 0; i < slice.state.size(); ++i) {
      buffers.state[i] = from_begin(slice.state[i]);
    }
    (kernels.*rule)(buffers, numbers);
    if (!slice.rounded.defined()) continue;
    slice.rounded.narrow(0, begin, size).copy_(slice.parameter.narrow(0, begin, size));
  }
}

// An optimizer with one of the kernels' rules, whose own numbers `complete` fills in.
class FusedOptimizer final : public Optimizer {
 public:
  using Complete = std::function<void(UpdateNumbers& numbers, std::int64_t step)>;
  FusedOptimizer(std::vector<std::string> state_names, Rule rule, Complete complete)
      : Optimizer(std::move(state_names)), rule_(rule), complete_(std::move(complete)) {}

 private:
  void run(const OptimizerSlice& slice, const UpdateSettings& settings) const override {
    UpdateNumbers numbers{};
    numbers.gradient_scale = settings.gradient_scale;
    numbers.clip_value = settings.clip_value.value_or(std::numeric_limits<double>::infinity());
    numbers.weight_decay = settings.weight_decay;
    numbers.lr = settings.lr;
    complete_(numbers, settings.step);
    run_rule(rule_, slice, numbers);
  }

  Rule rule_;
  Complete complete_;
};

keys::ConfigKeys sgd_keys(OptimizerOptions& options) {
  constexpr const char* kNeedsMomentum = "needs optimizer.momentum greater than 0";
  const auto dampening_problem = [&options] {
    return options.dampening > 0 && options.momentum == 0 ? kNeedsMomentum : "";
  };
  const auto nesterov_problem = [&options] {
    if (!options.nesterov) return "";
    if (options.momentum == 0) return kNeedsMomentum;
    return options.dampening > 0 ? "needs optimizer.dampening 0" : "";
  };
  return {
      {"momentum", number(options.momentum, keys::kPartBelow1), "momentum of the gradients"},
      {"dampening",
       number(options.dampening, keys::kPart),
       "the part of a gradient that is kept out of the momentum",
       {.problem = dampening_problem, .others = {"momentum"}}},
      {"nesterov",
       keys::flag(options.nesterov),
       "take Nesterov's momentum",
       {.problem = nesterov_problem, .others = {"momentum", "dampening"}}},
  };
}

std::unique_ptr<Optimizer> make_sgd(const OptimizerOptions& options) {
  using Names = std::vector<std::string>;
  const bool remembers = options.momentum > 0;
  return std::make_unique<FusedOptimizer>(
      remembers ? Names{"momentum_buffer"} : Names{},
      remembers ? &ElementKernels::momentum : &ElementKernels::sgd,
      [momentum = options.momentum, dampening = options.dampening, nesterov = options.nesterov](
          UpdateNumbers& numbers, std::int64_t step) {
        numbers.momentum = momentum;
        numbers.undamped = step == 1 ? 1 : 1 - dampening;
        numbers.of_g = nesterov ? 1 : 0;
        numbers.of_buffer = nesterov ? momentum : 1;
      });
}

keys::ConfigKeys adam_keys(OptimizerOptions& options) {
  return {
      {"betas", keys::list(options.betas, keys::kPartBelow1),
       "decay of the mean gradient and of its mean square"},
      {"eps", number(options.eps, keys::kPositive), "added to the root of the mean square"},
      {"amsgrad", keys::flag(options.amsgrad),
       "divide by the root of the largest mean square so far"},
  };
}

// Weight decay that is `decoupled` is not added to the gradient, but taken off the parameter.
template <bool decoupled>
std::unique_ptr<Optimizer> make_adam(const OptimizerOptions& options) {
  std::vector<std::string> state{"exp_avg", "exp_avg_sq"};
  if (options.amsgrad) state.emplace_back("max_exp_avg_sq");
  return std::make_unique<FusedOptimizer>(
      std::move(state), options.amsgrad ? &ElementKernels::amsgrad : &ElementKernels::adam,
      [betas = options.betas, eps = options.eps](UpdateNumbers& numbers, std::int64_t step) {
        numbers.beta1 = betas[0];
        numbers.beta2 = betas[1];
        numbers.eps = eps;
        numbers.keep = decoupled ? 1 - numbers.lr * numbers.weight_decay : 1;
        if (decoupled) numbers.weight_decay = 0;
        numbers.lr /= 1 - power(betas[0], step);
        numbers.root_scale = 1 / std::sqrt(1 - power(betas[1], step));
      });
}

}  // namespace

OptimizerKind sgd_kind() {
  return {{"sgd", "stochastic gradient descent, with momentum if that is set", sgd_keys}, make_sgd};
}

OptimizerKind adam_kind() {
  return {{"adam", "Adam (arXiv:1412.6980)", adam_keys}, make_adam<false>};
}

OptimizerKind adamw_kind() {
  return {{"adamw", "Adam with decoupled weight decay (arXiv:1711.05101)", adam_keys},
          make_adam<true>};
}

}  // namespace lockstep::optim
