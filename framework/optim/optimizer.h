#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include <ATen/core/Tensor.h>

#include "framework/optim/optimizer_options.h"

namespace lockstep {

/// A run of elements that one update treats alike, anywhere in flat buffers. Tensors are of one
/// dimension, contiguous, on the CPU and of one length.
struct OptimizerSlice {
  at::Tensor parameter;           ///< float32 or float64: the values that the optimizer keeps
  at::Tensor gradient;            ///< of the same dtype
  std::vector<at::Tensor> state;  ///< state_tensors() of the parameter's dtype, at first zeros
  /// Undefined or, for float32, bfloat16 or float16: gets the new values, rounded to nearest even.
  at::Tensor rounded = {};
};

/// The numbers of one update, beside the optimizer's options.
struct UpdateSettings {
  std::int64_t step = 1;                  ///< counted from 1
  double lr = 0;                          ///< of this step and these parameters
  double weight_decay = 0;                ///< of these parameters
  double gradient_scale = 1;              ///< multiplies the gradient first
  std::optional<double> clip_value = {};  ///< each of its values is brought within ± this
};

/// Computes new parameters from gradients. It has no state of its own: that is in the slices.
/// Several threads may use it.
class Optimizer {
 public:
  Optimizer() = default;
  Optimizer(const Optimizer&) = delete;
  Optimizer& operator=(const Optimizer&) = delete;
  virtual ~Optimizer() = default;

  /// The names of the tensors in a slice's state, as torch.optim has them ("exp_avg").
  [[nodiscard]] virtual const std::vector<std::string>& state_names() const = 0;
  [[nodiscard]] std::size_t state_tensors() const { return state_names().size(); }

  /// Does one step of a slice, in place, in one pass over its memory. Elementwise: the bits do not
  /// depend on the CPU, nor on how buffers are cut into slices. Throws ValueError for a slice that
  /// is not as above, a step below 1 and a clip_value that is not above 0.
  virtual void update(const OptimizerSlice& slice, const UpdateSettings& settings) const = 0;
};

/// The optimizer that `options` name, with torch.optim's formulas. Throws ValueError for an unknown
/// name, for numbers outside their range, and for an option that is set but that this optimizer
/// doesn't have.
[[nodiscard]] std::unique_ptr<Optimizer> make_optimizer(const OptimizerOptions& options);

}  // namespace lockstep
