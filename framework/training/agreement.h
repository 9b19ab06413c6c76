#pragma once

#include <string>
#include <vector>

#include <ATen/core/Tensor.h>

#include "framework/axes/axis_names.h"

namespace lockstep {

/// Gives `tensors` replica 0's values on all replicas of the axis. All replicas together.
void start_alike(const std::vector<at::Tensor>& tensors, const AxisNames& axis_name);

/// Throws Error unless `tensors`, called `names`, have the same bytes on all replicas of the axis:
/// it names the first that differs and the replicas that differ from the first one. Hashes of 64
/// bits are compared. All replicas together.
void check_agreement(const std::vector<std::string>& names, const std::vector<at::Tensor>& tensors,
                     const AxisNames& axis_name);

}  // namespace lockstep
