#pragma once

#include <span>

#include <ATen/core/Tensor.h>

#include "framework/axes/axis_names.h"

namespace lockstep {

/// Replaces every parameter's gradient by its mean over the axis' replicas, and returns the mean of
/// `loss`, a floating-point scalar that travels with them: pmean of both, in one message a dtype. A
/// parameter without a gradient counts as one with zeros, on this replica alone, and has the mean
/// afterwards. All replicas call it with the same parameters. Throws as pmean.
at::Tensor average_gradients(std::span<const at::Tensor> parameters, const at::Tensor& loss,
                             const AxisNames& axis_name);

}  // namespace lockstep
