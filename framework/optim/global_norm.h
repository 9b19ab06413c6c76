#pragma once

#include <cstdint>

#include <ATen/core/Tensor.h>

#include "framework/base/exact_sum.h"
#include "framework/optim/optimizer_kernels.h"

namespace lockstep {

// The L2 norm of all gradients together. Each replica adds the squares of its own part, the limbs
// of these sums are added over replicas, and the norm is the root of the value.

/// Parts of a parameter's gradient must begin a multiple of so many elements after its first. Then
/// the sum has the same bits however the gradients are cut.
inline constexpr std::int64_t kSquaresBlockElements = optim::kSquaresBlock;

/// Adds the squares of a part of one parameter's gradient: of one dimension, contiguous, on the
/// CPU, in float32 or float64. The squares of each 64 elements are added in float64, in a fixed
/// order; these sums are added exactly. If an element is not finite, value() is not finite.
/// ValueError for other tensors.
void add_squares(const at::Tensor& gradient, ExactSum& sum);

/// The factor that scales gradients of norm `norm` to a norm of at most `max_norm`: max_norm /
/// (norm + 1e-6), as torch.nn.utils.clip_grad_norm_, if that is below 1. If the norm is not finite,
/// the factor is 1; the caller decides what to do. ValueError unless max_norm is above 0 (infinity
/// only measures).
[[nodiscard]] double clip_scale(double norm, double max_norm);

}  // namespace lockstep
