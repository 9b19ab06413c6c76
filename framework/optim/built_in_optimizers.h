#pragma once

#include <vector>

#include "framework/optim/optimizers.h"

namespace lockstep::optim {

/// SGD, Adam and AdamW, each in one pass over memory. Their bits do not depend on the CPU.
[[nodiscard]] std::vector<OptimizerKind> fused_optimizers();

/// RMSprop and Adagrad, in LibTorch's functions.
[[nodiscard]] std::vector<OptimizerKind> torch_optimizers();

}  // namespace lockstep::optim
