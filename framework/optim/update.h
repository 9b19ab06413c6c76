#pragma once

#include <cstddef>

#include "framework/optim/optimizer.h"
#include "framework/optim/optimizer_kernels.h"

namespace lockstep {

/// One of the kernels' rules, for any type of element.
using UpdateRule = ElementKernels::Update ElementKernels::*;

/// Throws ValueError unless `slice` is as OptimizerSlice says, with `state_tensors` of state.
void check_slice(const OptimizerSlice& slice, std::size_t state_tensors);

/// Runs `rule` of the kernels over a slice that was checked.
void run_update(const OptimizerSlice& slice, UpdateRule rule, const UpdateNumbers& numbers);

}  // namespace lockstep
