#pragma once

#include <memory>

#include "framework/objectives/metric.h"

namespace lockstep::objectives {

// See make_metric for both.

/// Sums: for each output the targets, their squares, the squared errors, the samples.
[[nodiscard]] std::shared_ptr<const Metric> make_r2();

[[nodiscard]] std::shared_ptr<const Metric> make_mean_absolute_error();

}  // namespace lockstep::objectives
