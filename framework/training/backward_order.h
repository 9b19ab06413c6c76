#pragma once

#include <cstddef>
#include <vector>

#include <ATen/core/Tensor.h>

#include "framework/axes/axis_names.h"

namespace lockstep {

/// The indices of `parameters` (leaves that require a gradient) in the order in which the backward
/// of `loss` will have their gradients ready: those it does not reach come last, in reverse order.
/// Read from autograd's graph, which the engine walks by the number that each node got in the
/// forward, the latest first; nothing is run. `loss` may be undefined: it reaches none.
[[nodiscard]] std::vector<std::size_t> backward_order(const at::Tensor& loss,
                                                      const std::vector<at::Tensor>& parameters);

/// That of the axis' first replica, for all of them.
[[nodiscard]] std::vector<std::size_t> agreed_backward_order(
    const at::Tensor& loss, const std::vector<at::Tensor>& parameters, const AxisNames& axis_name);

}  // namespace lockstep
