#pragma once

#include <ostream>

#include <ATen/core/Tensor.h>
#include <torch/nn/cloneable.h>
#include <torch/nn/pimpl.h>

#include "framework/base/random.h"
#include "framework/training/keyed_module.h"

namespace lockstep {
namespace training {
/// ValueError unless `p` is in [0, 1].
void check_probability(const char* what, double p);
}  // namespace training

/// `input`, with each element set to zero with probability `p` and otherwise divided by 1 - p. The
/// choice is a pure function of `key` and the sizes. Throws ValueError for a `p` outside of [0, 1]
/// and an input that is not floating.
[[nodiscard]] at::Tensor dropout(const at::Tensor& input, double p, const Key& key);

/// As torch::nn::Dropout, without its process-wide generator: which elements are dropped is
/// dropout(input, p, KeyedModule::next_key()) of the kind "dropout".
///
///   torch::nn::Sequential net(torch::nn::Linear(64, 64), lockstep::Dropout(0.1));
///   ZeroTrainer trainer(*net, {.seed = 7});
///
/// In evaluation mode (and with p = 0) forward returns its input. In training mode it throws as
/// KeyedModule::next_key(): use dropout() with a key there.
class DropoutImpl : public torch::nn::Cloneable<DropoutImpl>, public KeyedModule {
 public:
  /// Throws ValueError for a `p` outside of [0, 1].
  explicit DropoutImpl(double p = 0.5);

  at::Tensor forward(const at::Tensor& input) {
    return is_training() && p_ > 0 ? dropout(input, p_, next_key()) : input;
  }

  void reset() override {}
  void pretty_print(std::ostream& stream) const override {
    stream << "lockstep::Dropout(p=" << p_ << ")";
  }

 private:
  double p_;
};
TORCH_MODULE(Dropout);

}  // namespace lockstep
