#pragma once

#include <memory>

#include "framework/objectives/loss.h"

namespace lockstep {

/// The squared error, mean over all elements, as torch.nn.functional.mse_loss. Outputs and targets
/// have one shape (samples, …), of which nothing is broadcast, and one floating-point dtype; half
/// types count as float32, in which they are computed. Weighted by samples. mean() throws
/// ValueError for other shapes and dtypes.
[[nodiscard]] std::shared_ptr<const Loss> make_mean_squared_error();

}  // namespace lockstep
