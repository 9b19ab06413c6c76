#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include <ATen/core/Tensor.h>

#include "framework/base/non_copyable.h"

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
/// Several threads may use it. To write one, derive from ElementwiseOptimizer.
class Optimizer : private NonCopyable {
 public:
  /// `state_names`: of the tensors in a slice's state, as torch.optim has them ("exp_avg").
  explicit Optimizer(std::vector<std::string> state_names) : state_names_(std::move(state_names)) {}
  virtual ~Optimizer() = default;

  [[nodiscard]] const std::vector<std::string>& state_names() const { return state_names_; }
  [[nodiscard]] std::size_t state_tensors() const { return state_names_.size(); }

  /// Does one step of a slice, in place. Elementwise: the bits do not depend on how buffers are cut
  /// into slices. Throws ValueError for a slice that is not as above, a step below 1 and a
  /// clip_value that is not above 0.
  void update(const OptimizerSlice& slice, const UpdateSettings& settings) const;

 private:
  /// The step of a slice and with settings that are right.
  virtual void run(const OptimizerSlice& slice, const UpdateSettings& settings) const = 0;

  std::vector<std::string> state_names_;
};

/// An optimizer in LibTorch's own functions, which all of ZeRO's stages cut into shards: see
/// "An optimizer of your own" in models/README.md.
class ElementwiseOptimizer : public Optimizer {
 public:
  using Optimizer::Optimizer;

 private:
  /// Updates the parameter and its state in place. The gradient is scaled and clipped already.
  /// Element i of all results depends on element i of all arguments alone: no norms, no means. They
  /// have one dimension, and a length that the optimizer chooses: LibTorch then computes every
  /// element in the same way, on one thread, however a parameter is cut. Without gradients of
  /// autograd.
  virtual void run_on(const at::Tensor& parameter, const at::Tensor& gradient,
                      const std::vector<at::Tensor>& state,
                      const UpdateSettings& settings) const = 0;

  void run(const OptimizerSlice& slice, const UpdateSettings& settings) const final;
};

}  // namespace lockstep
