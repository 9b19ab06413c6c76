#pragma once

#include <vector>

#include "framework/optim/optimizers.h"

namespace lockstep::optim {

/// SGD, Adam and AdamW, each in one pass over memory. Their bits do not depend on the CPU.
[[nodiscard]] std::vector<OptimizerKind> fused_optimizers();

}  // namespace lockstep::optim
