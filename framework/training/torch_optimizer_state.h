#pragma once

#include <string>

#include <ATen/core/Tensor.h>

#include "framework/training/state.h"

namespace torch::optim {
class Optimizer;
}

namespace lockstep::training {

/// What one of LibTorch's optimizers keeps for a parameter called `name`: nothing before its first
/// update. Restored, the parameter has no state that the source lacks. ValueError for LBFGS and
/// optimizers of a program's own.
void archive_torch_state(torch::optim::Optimizer& optimizer, const at::Tensor& parameter,
                         const std::string& name, const StateArchive& archive);

}  // namespace lockstep::training
