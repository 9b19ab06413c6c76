#pragma once

#include <ostream>

#include <ATen/core/Tensor.h>
#include <torch/nn/cloneable.h>
#include <torch/nn/pimpl.h>

#include "framework/base/random.h"
#include "framework/training/keyed_module.h"

namespace lockstep {

/// `input`, with each sample (row of dimension 0) set to zero with probability `p` and otherwise
/// divided by 1 - p: for a residual branch, x + stochastic_depth(branch(x), p, key). The choice is
/// a pure function of `key` and the number of rows. As torchvision.ops.stochastic_depth with mode
/// "row"; Huang et al., Deep Networks with Stochastic Depth, 2016. ValueError for a `p` outside of
/// [0, 1] and an input that is not floating or has no dimensions.
[[nodiscard]] at::Tensor stochastic_depth(const at::Tensor& input, double p, const Key& key);

/// As torchvision.ops.StochasticDepth with mode "row". Which rows are dropped is
/// stochastic_depth(input, p, KeyedModule::next_key()) of the kind "stochastic_depth".
///
///   x = x + depth_(branch_(x));  // lockstep::StochasticDepth depth_(0.1), a submodule
///
/// In evaluation mode (and with p = 0) forward returns its input. In training mode it throws as
/// KeyedModule::next_key(): use stochastic_depth() with a key there.
class StochasticDepthImpl : public torch::nn::Cloneable<StochasticDepthImpl>, public KeyedModule {
 public:
  /// Throws ValueError for a `p` outside of [0, 1].
  explicit StochasticDepthImpl(double p);

  at::Tensor forward(const at::Tensor& input) {
    return is_training() && p_ > 0 ? stochastic_depth(input, p_, next_key()) : input;
  }

  void reset() override {}
  void pretty_print(std::ostream& stream) const override;

 private:
  double p_;
};
TORCH_MODULE(StochasticDepth);

}  // namespace lockstep
