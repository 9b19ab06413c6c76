#include <memory>
#include <string>
#include <vector>

#include <ATen/core/Tensor.h>

#include "framework/keys/key.h"
#include "framework/optim/built_in_optimizers.h"

namespace lockstep::optim {
namespace {

class RMSprop final : public ElementwiseOptimizer {
 public:
  explicit RMSprop(const RMSpropOptions& options)
      : ElementwiseOptimizer(names(options)), options_(options) {}

 private:
  static std::vector<std::string> names(const RMSpropOptions& options) {
    std::vector<std::string> all{"square_avg"};
    if (options.momentum > 0) all.emplace_back("momentum_buffer");
    if (options.centered) all.emplace_back("grad_avg");
    return all;
  }

  void run_on(const at::Tensor& parameter, const at::Tensor& gradient,
              const std::vector<at::Tensor>& state, const UpdateSettings& settings) const override {
    gradient.add_(parameter, settings.weight_decay);
    const at::Tensor& square = state[0].mul_(options_.alpha);
    square.addcmul_(gradient, gradient, 1 - options_.alpha);
    at::Tensor root;
    if (options_.centered) {
      const at::Tensor& mean = state.back().mul_(options_.alpha);
      mean.add_(gradient, 1 - options_.alpha);
      root = square.addcmul(mean, mean, -1).sqrt_().add_(options_.eps);
    } else {
      root = square.sqrt().add_(options_.eps);
    }
    if (options_.momentum > 0) {
      parameter.sub_(state[1].mul_(options_.momentum).addcdiv_(gradient, root), settings.lr);
    } else {
      parameter.addcdiv_(gradient, root, -settings.lr);
    }
  }

  RMSpropOptions options_;
};

keys::ConfigKeys rmsprop_keys(RMSpropOptions& options) {
  return {
      {"alpha", keys::number(options.alpha, keys::kPartBelow1),
       "decay of the mean square gradient"},
      {"eps", keys::number(options.eps, keys::kPositive), "added to the root of the mean square"},
      {"momentum", keys::number(options.momentum, keys::kPartBelow1), "momentum of the updates"},
      {"centered", keys::flag(options.centered), "divide by the root of the gradients' variance"},
  };
}

class Adagrad final : public ElementwiseOptimizer {
 public:
  explicit Adagrad(const AdagradOptions& options)
      : ElementwiseOptimizer({"sum"}), options_(options) {}

 private:
  void run_on(const at::Tensor& parameter, const at::Tensor& gradient,
              const std::vector<at::Tensor>& state, const UpdateSettings& settings) const override {
    const at::Tensor& sum = state[0];
    if (settings.step == 1) sum.fill_(options_.initial_accumulator_value);
    gradient.add_(parameter, settings.weight_decay);
    sum.addcmul_(gradient, gradient);
    const double lr =
        settings.lr / (1 + static_cast<double>(settings.step - 1) * options_.lr_decay);
    parameter.addcdiv_(gradient, sum.sqrt().add_(options_.eps), -lr);
  }

  AdagradOptions options_;
};

keys::ConfigKeys adagrad_keys(AdagradOptions& options) {
  return {
      {"lr_decay", keys::number(options.lr_decay, keys::kNotNegative),
       "in step t (from 1) the learning rate is divided by 1 + (t - 1) lr_decay"},
      {"initial_accumulator_value",
       keys::number(options.initial_accumulator_value, keys::kNotNegative),
       "what the sum of squared gradients begins with"},
      {"eps", keys::number(options.eps, keys::kPositive), "added to the root of that sum"},
  };
}

template <typename Own, typename Options>
std::unique_ptr<Optimizer> make(const Options& options) {
  return std::make_unique<Own>(options);
}

}  // namespace

OptimizerKind rmsprop_kind() {
  return optimizer_kind<RMSpropOptions>("rmsprop", "RMSprop, as torch.optim has it", rmsprop_keys,
                                        make<RMSprop>);
}

OptimizerKind adagrad_kind() {
  return optimizer_kind<AdagradOptions>("adagrad", "Adagrad, as torch.optim has it", adagrad_keys,
                                        make<Adagrad>);
}

}  // namespace lockstep::optim
