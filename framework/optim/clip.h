#pragma once

#include <span>

#include <ATen/core/Tensor.h>

namespace lockstep {

/// Scales the parameters' gradients in place so that the L2 norm over all of them together is at
/// most `max_norm` (up to rounding), and returns the norm before. Parameters without a gradient are
/// skipped. A norm that is not finite is returned and the gradients are left alone: the caller
/// decides. Squares are summed in float64, parameter after parameter. Throws ValueError unless
/// max_norm is above 0 (infinity only measures).
double clip_by_global_norm(std::span<const at::Tensor> parameters, double max_norm);

}  // namespace lockstep
