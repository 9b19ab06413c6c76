#include "framework/optim/optimizer.h"

#include <algorithm>
#include <cmath>
#include <functional>
#include <limits>
#include <utility>

#include <c10/core/GradMode.h>

#include "framework/base/text.h"
#include "framework/optim/optimizer_kernels.h"

namespace lockstep {
namespace {

std::string setting(const OptimizerOptions& options, const std::string& name) {
  return lockstep::str("optimizer ", options.name, ": ", name);
}

void check_at_least_zero(const OptimizerOptions& options, const std::string& name, double value) {
  require(std::isfinite(value) && value >= 0, setting(options, name),
          " must be a finite number of at least 0, not ", value);
}

void check_not_set(const OptimizerOptions& options, const char* name, bool is_default) {
  require(is_default, setting(options, name), " is not an option of it");
}

// The power by squaring, whose bits do not depend on the C library, as those of std::pow do.
double power(double base, std::int64_t exponent) {
  double result = 1;
  for (; exponent > 0; exponent /= 2, base *= base) {
    if (exponent % 2 == 1) result *= base;
  }
  return result;
}

void check_tensor(const char* what, const at::Tensor& tensor, const at::Tensor& parameter,
                  bool dtype_fits, const char* dtypes) {
  const auto check = [&](bool holds, const auto&... why) {
    require(holds, "optimizer: a slice's ", what, " ", why...);
  };
  check(tensor.defined(), "is missing");
  check(tensor.device().is_cpu() && tensor.dim() == 1 && tensor.is_contiguous(),
        "must have one dimension and be contiguous on the CPU, it is of shape ", tensor.sizes(),
        " on ", tensor.device());
  check(tensor.numel() == parameter.numel(), "has ", counted(tensor.numel(), "element"),
        ", its parameter ", parameter.numel());
  check(dtype_fits, "is ", tensor.scalar_type(), ", must be ", dtypes, ", with a parameter in ",
        parameter.scalar_type());
}

// Throws ValueError unless `slice` is as OptimizerSlice says, with `state_tensors` of state.
void check_slice(const OptimizerSlice& slice, std::size_t state_tensors) {
  const at::Tensor& parameter = slice.parameter;
  const bool is_float = parameter.defined() && parameter.scalar_type() == at::kFloat;
  const bool is_double = parameter.defined() && parameter.scalar_type() == at::kDouble;
  check_tensor("parameter", parameter, parameter, is_float || is_double, "float32 or float64");
  const auto check_same = [&](const char* what, const at::Tensor& tensor) {
    const bool is_same = tensor.defined() && tensor.scalar_type() == parameter.scalar_type();
    check_tensor(what, tensor, parameter, is_same, "of the same dtype");
  };
  check_same("gradient", slice.gradient);
  require(slice.state.size() == state_tensors, "optimizer: a slice has ",
          counted(std::ssize(slice.state), "tensor"), " of state, the optimizer ", state_tensors);
  for (const at::Tensor& state : slice.state) check_same("state", state);
  if (slice.rounded.defined()) {
    const at::ScalarType type = slice.rounded.scalar_type();
    check_tensor("rounded copy", slice.rounded, parameter,
                 is_float && (type == at::kBFloat16 || type == at::kHalf),
                 "bfloat16 or float16, of float32");
  }
}

// One of the kernels' rules, for any type of element.
using Rule = optim::ElementKernels::Update optim::ElementKernels::*;

void run(Rule rule, const OptimizerSlice& slice, const optim::UpdateNumbers& numbers) {
  const c10::AutoGradMode no_grad(false);
  // With a rounded copy a part at a time, so that it is made of values that are in a near cache.
  constexpr std::int64_t kRoundedAtOnce = 16'384;
  const optim::OptimizerKernels& all = optim::optimizer_kernels().back();
  const optim::ElementKernels& kernels =
      slice.parameter.scalar_type() == at::kDouble ? all.float64 : all.float32;
  const std::int64_t count = slice.parameter.numel();
  const std::int64_t at_once = slice.rounded.defined() ? kRoundedAtOnce : count;
  for (std::int64_t begin = 0; begin < count; begin += at_once) {
    const auto from_begin = [&](const at::Tensor& tensor) {
      return static_cast<std::byte*>(tensor.data_ptr()) +
             static_cast<std::size_t>(begin) * tensor.itemsize();
    };
    const std::int64_t size = std::min(at_once, count - begin);
    optim::UpdateBuffers buffers{.parameter = from_begin(slice.parameter),
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
  using Complete = std::function<void(optim::UpdateNumbers& numbers, std::int64_t step)>;
  FusedOptimizer(std::vector<std::string> state_names, Rule rule, Complete complete)
      : state_names_(std::move(state_names)), rule_(rule), complete_(std::move(complete)) {}

  [[nodiscard]] const std::vector<std::string>& state_names() const override {
    return state_names_;
  }

  void update(const OptimizerSlice& slice, const UpdateSettings& settings) const override {
    check_slice(slice, state_tensors());
    require(settings.step >= 1, "optimizer: steps are counted from 1, this is step ",
            settings.step);
    optim::UpdateNumbers numbers{};
    numbers.gradient_scale = settings.gradient_scale;
    numbers.clip_value = settings.clip_value.value_or(std::numeric_limits<double>::infinity());
    require(numbers.clip_value > 0, "optimizer: clip_value must be above 0, not ",
            numbers.clip_value);
    numbers.weight_decay = settings.weight_decay;
    numbers.lr = settings.lr;
    complete_(numbers, settings.step);
    run(rule_, slice, numbers);
  }

 private:
  std::vector<std::string> state_names_;
  Rule rule_;
  Complete complete_;
};

std::unique_ptr<Optimizer> make_sgd(const OptimizerOptions& options) {
  const OptimizerOptions defaults;
  check_not_set(options, "betas", options.betas == defaults.betas);
  check_not_set(options, "eps", options.eps == defaults.eps);
  check_at_least_zero(options, "momentum", options.momentum);
  require(!options.nesterov || options.momentum != 0, setting(options, "nesterov"),
          " needs a momentum above 0");
  using Names = std::vector<std::string>;
  const bool remembers = options.momentum > 0;
  return std::make_unique<FusedOptimizer>(
      remembers ? Names{"momentum_buffer"} : Names{},
      remembers ? &optim::ElementKernels::momentum : &optim::ElementKernels::sgd,
      [momentum = options.momentum, nesterov = options.nesterov](optim::UpdateNumbers& numbers,
                                                                 std::int64_t /*step*/) {
        numbers.momentum = momentum;
        numbers.of_g = nesterov ? 1 : 0;
        numbers.of_buffer = nesterov ? momentum : 1;
      });
}

// Weight decay that is `decoupled` is not added to the gradient, but taken off the parameter.
template <bool decoupled>
std::unique_ptr<Optimizer> make_adam(const OptimizerOptions& options) {
  check_not_set(options, "momentum", options.momentum == 0);
  check_not_set(options, "nesterov", !options.nesterov);
  check_at_least_zero(options, "eps", options.eps);
  for (const double beta : options.betas) {
    require(beta >= 0 && beta < 1, setting(options, "betas"),
            " must be at least 0 and below 1, not ", beta);
  }
  return std::make_unique<FusedOptimizer>(
      std::vector<std::string>{"exp_avg", "exp_avg_sq"}, &optim::ElementKernels::adam,
      [betas = options.betas, eps = options.eps](optim::UpdateNumbers& numbers, std::int64_t step) {
        numbers.beta1 = betas[0];
        numbers.beta2 = betas[1];
        numbers.eps = eps;
        numbers.keep = decoupled ? 1 - numbers.lr * numbers.weight_decay : 1;
        if (decoupled) numbers.weight_decay = 0;
        numbers.lr /= 1 - power(betas[0], step);
        numbers.root_scale = 1 / std::sqrt(1 - power(betas[1], step));
      });
}

struct Registered {
  const char* name;
  std::unique_ptr<Optimizer> (*make)(const OptimizerOptions& options);
};
constexpr Registered kOptimizers[] = {
    {"sgd", make_sgd}, {"adam", make_adam<false>}, {"adamw", make_adam<true>}};

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

std::vector<std::string> optimizer_names() {
  std::vector<std::string> names;
  for (const Registered& optimizer : kOptimizers) names.emplace_back(optimizer.name);
  return names;
}

std::unique_ptr<Optimizer> make_optimizer(const OptimizerOptions& options) {
  for (const Registered& optimizer : kOptimizers) {
    if (optimizer.name != options.name) continue;
    check_common(options);
    return optimizer.make(options);
  }
  throw ValueError(lockstep::str("unknown optimizer '", options.name, "'",
                                 did_you_mean(options.name, optimizer_names()), "; known are ",
                                 join(optimizer_names())));
}

}  // namespace lockstep
