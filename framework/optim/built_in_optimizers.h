#pragma once

#include <vector>

#include "framework/keys/key.h"
#include "framework/optim/optimizers.h"

namespace lockstep::optim {

/// Of a mean that is kept over steps: the part that stays.
inline const keys::Rule<double> kDecay = keys::from_below(0.0, 1.0);

/// SGD, Adam and AdamW, each in one pass over memory. Their bits do not depend on the CPU.
[[nodiscard]] std::vector<OptimizerKind> fused_optimizers();

/// RMSprop and Adagrad, in LibTorch's functions.
[[nodiscard]] std::vector<OptimizerKind> torch_optimizers();

}  // namespace lockstep::optim
