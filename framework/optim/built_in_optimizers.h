#pragma once

#include "framework/keys/key.h"
#include "framework/optim/optimizers.h"

namespace lockstep::optim {

/// Of a mean that is kept over steps: the part that stays.
inline const keys::Rule<double> kDecay = keys::from_below(0.0, 1.0);

/// In one pass over memory. Their bits do not depend on the CPU.
[[nodiscard]] OptimizerKind sgd_kind();
[[nodiscard]] OptimizerKind adam_kind();
[[nodiscard]] OptimizerKind adamw_kind();

/// In LibTorch's functions.
[[nodiscard]] OptimizerKind rmsprop_kind();
[[nodiscard]] OptimizerKind adagrad_kind();

}  // namespace lockstep::optim
