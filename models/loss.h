#pragma once

#include <ATen/core/Tensor.h>

#include "framework/data/data.h"

namespace lockstep {

/// The mean loss over a batch, a scalar.
///
/// Regression: the squared error, mean over all elements; `outputs` and `targets` have one shape
/// (nothing is broadcast). Classification: the cross entropy of `outputs` (samples, classes; scores
/// before softmax) and `targets` (samples; int64 labels), mean over the samples. Throws ValueError
/// for other shapes and dtypes and for a batch without samples, which has no mean.
[[nodiscard]] at::Tensor loss(Task task, const at::Tensor& outputs, const at::Tensor& targets);

}  // namespace lockstep
