#pragma once

#include "framework/optim/optimizers.h"

namespace lockstep::optim {

/// In one pass over memory. Their bits do not depend on the CPU.
[[nodiscard]] OptimizerKind sgd_kind();
[[nodiscard]] OptimizerKind adam_kind();
[[nodiscard]] OptimizerKind adamw_kind();

/// In LibTorch's functions.
[[nodiscard]] OptimizerKind rmsprop_kind();
[[nodiscard]] OptimizerKind adagrad_kind();

}  // namespace lockstep::optim
