#pragma once

#include <ATen/core/Tensor.h>

namespace lockstep {

/// A map may give several members of a job one shared value: a result, or the gradient of a shared
/// argument. Its gradient counts only in the member that has the first replica sharing it. This
/// function is for the other members: gradients that reach its result become zeros, so that the
/// map's backward runs there, too.
[[nodiscard]] at::Tensor counted_elsewhere(const at::Tensor& result);

}  // namespace lockstep
