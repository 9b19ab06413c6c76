#pragma once

#include <ATen/core/ScalarType.h>

#include "framework/base/non_copyable.h"

namespace lockstep {

/// While it lives, LibTorch's operations in this thread compute in `type` where that is fast and
/// safe (convolutions, matrix products) and in float32 where it is not (losses, sums), as
/// torch.autocast("cpu", dtype) has it. Parameters and gradients stay float32. Scopes nest.
///
///   const AutocastScope scope(at::kBFloat16);
///   const at::Tensor mean = loss(model->forward(inputs), targets);  // the backward comes after it
///
/// Casts of parameters are not kept between operations: a layer's parameters may be gathered and
/// dropped in the scope (Block). What recompute() runs again in the backward has the same scope.
class AutocastScope : private NonCopyable {
 public:
  /// bfloat16, or at::kFloat for no casts at all, also inside of another scope; else a ValueError.
  explicit AutocastScope(at::ScalarType type);
  ~AutocastScope();

  /// What this thread computes in now: for a scope that does the same again.
  [[nodiscard]] static at::ScalarType type();

 private:
  bool was_enabled_;
  bool was_cached_;
  at::ScalarType outer_type_;
};

}  // namespace lockstep
