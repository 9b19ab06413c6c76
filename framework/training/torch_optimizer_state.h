#pragma once

#include <string>

#include <ATen/core/Tensor.h>

#include "framework/training/state.h"

namespace torch::optim {
class Optimizer;
}

namespace lockstep::training {

/// Visits what one of LibTorch's optimizers keeps for a parameter called `name`: nothing before its
/// first update. ValueError for LBFGS and optimizers of a program's own.
void visit_torch_state(torch::optim::Optimizer& optimizer, const at::Tensor& parameter,
                       const std::string& name, const VisitState& visit);
/// Restores it. Afterwards the parameter has no state that the source lacks.
void restore_torch_state(torch::optim::Optimizer& optimizer, const at::Tensor& parameter,
                         const std::string& name, const StateSource& source);

}  // namespace lockstep::training
