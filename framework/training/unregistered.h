#pragma once

#include <ATen/core/Tensor.h>

#include "framework/axes/axis_names.h"
#include "framework/training/module_parameters.h"

namespace lockstep::training {

/// Replica 0 logs the leaves that its `loss` depends on and that require a gradient, but are
/// neither parameters of the module nor those of another trainer: most often of a module that was
/// not registered. An undefined loss has none. For the first backward, since it walks over the
/// graph.
void tell_unregistered(const ModuleParameters& parameters, const at::Tensor& loss,
                       const AxisNames& axis_name);

}  // namespace lockstep::training
