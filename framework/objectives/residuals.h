#pragma once

#include <memory>
#include <vector>

#include "framework/objectives/metric.h"

namespace lockstep::objectives {

/// Rows: of a sample target - output, for each of its values. Outputs and targets are as of
/// make_mean_squared_error.
[[nodiscard]] std::shared_ptr<const Tally> make_residuals();

/// The values (float64, one dimension) below which these parts of all lie, from 0 to 1; between two
/// values on the line through them, as numpy.quantile has it. NaN where one of them is NaN, and
/// where there are none.
[[nodiscard]] std::vector<double> quantiles(const at::Tensor& values,
                                            const std::vector<double>& parts);

}  // namespace lockstep::objectives
