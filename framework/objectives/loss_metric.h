#pragma once

#include <memory>

#include "framework/objectives/metric.h"

namespace lockstep::objectives {

/// A function of a loss' mean over all batches, the smaller the better. Sums: mean times weight,
/// weight. See make_metric.
[[nodiscard]] std::shared_ptr<const Metric> make_loss_metric(std::shared_ptr<const Loss> loss,
                                                             double (*of_mean)(double));

}  // namespace lockstep::objectives
