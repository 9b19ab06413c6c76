#pragma once

#include <vector>

#include "framework/optim/optimizers.h"

namespace lockstep::optim {

/// RMSprop and Adagrad, in LibTorch's functions.
[[nodiscard]] std::vector<OptimizerKind> torch_optimizers();

}  // namespace lockstep::optim
