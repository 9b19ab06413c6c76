#pragma once

#include <cstdint>

#include <ATen/core/Tensor.h>

#include "framework/base/exact_sum.h"

namespace lockstep {

// The L2 norm of all gradients together: each replica adds the squares of its own part, their limbs
// are summed over replicas, and the norm is the root of the value.

/// Parts of a parameter's gradient begin a multiple of so many elements after its first: then the
/// sum has the same bits however the gradients are cut.
inline constexpr std::int64_t kSquaresBlockElements = 64;

/// Adds the squares of a part of one parameter's gradient: of one dimension, contiguous, on the
/// CPU, in float32 or float64. Those of every 64 elements are added in float64, in a fixed order,
/// and their sums exactly. Elements that are not finite make it so that value() is not. ValueError
/// for other tensors.
void add_squares(const at::Tensor& gradient, ExactSum& sum);

/// The factor for gradients whose norm is `norm`, for it to be at most `max_norm`: max_norm /
/// (norm + 1e-6), as torch.nn.utils.clip_grad_norm_, if that is below 1. 1 for a norm that is not
/// finite, which is for the caller to decide on. ValueError unless max_norm is above 0 (infinity
/// only measures).
[[nodiscard]] double clip_scale(double norm, double max_norm);

}  // namespace lockstep
