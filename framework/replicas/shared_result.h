#pragma once

#include <ATen/core/Tensor.h>

namespace lockstep {

/// What members of a job share that a map gave (a result, or the gradient of a shared argument), in
/// a member that has not the first of the replicas which share it: one value, whose gradient is
/// that in the first replica's member. Here gradients end as zeros, so that the map's backward runs
/// in this member, too.
[[nodiscard]] at::Tensor counted_elsewhere(const at::Tensor& result);

}  // namespace lockstep
