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

/// What one update is told beside the optimizer's options.
struct UpdateSettings {
  std::int64_t step = 1;                  ///< counted from 1
  double lr = 0;                          ///< of this step and these parameters
  double weight_decay = 0;                ///< of these parameters
  double gradient_scale = 1;              ///< times the gradient, before
  std::optional<double> clip_value = {};  ///< each of its values is brought within ± this
};

/// How parameters follow from gradients. It keeps nothing: what is to be remembered is the slices'
/// state. It may be used from several threads.
class Optimizer {
 public:
  Optimizer() = default;
  Optimizer(const Optimizer&) = delete;
  Optimizer& operator=(const Optimizer&) = delete;
  virtual ~Optimizer() = default;

  /// What the tensors of a slice's state are, by torch.optim's names ("exp_avg").
  [[nodiscard]] virtual const std::vector<std::string>& state_names() const = 0;
  [[nodiscard]] std::size_t state_tensors() const { return state_names().size(); }

  /// One step of a slice, in place, in one pass over its memory. Elementwise: the bits of a result
  /// depend on no CPU, and not on how buffers are cut into slices. Throws ValueError for a slice
  /// that is not as above, a step below 1 and a clip_value that is not above 0.
  virtual void update(const OptimizerSlice& slice, const UpdateSettings& settings) const = 0;
};

/// The optimizer that `options` name, with torch.optim's formulas. Throws ValueError for an unknown
/// name, for numbers outside their range, and for an option that is set but that this optimizer
/// doesn't have.
[[nodiscard]] std::unique_ptr<Optimizer> make_optimizer(const OptimizerOptions& options);

}  // namespace lockstep
