#pragma once

#include <cstdint>
#include <optional>

#include <ATen/core/Tensor.h>

#include "framework/base/non_copyable.h"

namespace lockstep {

/// What a training makes small: a mean over the targets of a batch, in which each has a weight. So
/// batches add up. The loss of a whole job is the sum of mean() * weight() over its replicas and
/// microbatches, divided by the sum of their weight(): exactly, however unequal the parts are.
///
/// Losses have no state: several threads may use one. To write one, derive from this class; mean()
/// alone is enough where every sample counts alike.
class Loss : private NonCopyable {
 public:
  virtual ~Loss() = default;

  /// The weighted mean over the batch, a differentiable scalar in float32 (float64 for outputs in
  /// float64). Where weight() is 0 it is zero, with gradients of zero, whatever the outputs are.
  /// Throws ValueError for shapes, dtypes and targets that the loss has no value for, and for a
  /// batch without samples.
  [[nodiscard]] virtual at::Tensor mean(const at::Tensor& outputs,
                                        const at::Tensor& targets) const = 0;

  /// What the mean is divided by, 0 or more: the number of targets that count, or the sum of their
  /// weights. By default the number of samples, the targets' first dimension.
  [[nodiscard]] virtual double weight(const at::Tensor& targets) const {
    return static_cast<double>(targets.size(0));
  }

  /// Whether weight() is a constant times the number of samples, for batches whose targets have one
  /// shape but for that number. Then replicas know each other's weights without asking. `false` is
  /// always right, and costs a message a step.
  [[nodiscard]] virtual bool is_weighted_by_samples() const { return false; }

  /// The target that does not count, if the loss has one. Metrics leave it out as well.
  [[nodiscard]] virtual std::optional<std::int64_t> ignore_index() const { return std::nullopt; }
};

}  // namespace lockstep
