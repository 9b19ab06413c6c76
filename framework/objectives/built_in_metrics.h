#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <string>

#include "framework/objectives/metric.h"

namespace lockstep::objectives {

// See make_metric for what they are.

/// The part of the counted targets whose class has one of the `k` largest outputs. Messages call it
/// `name`.
[[nodiscard]] std::shared_ptr<const Metric> make_top_accuracy(
    std::string name, std::int64_t k, std::optional<std::int64_t> ignore_index);

/// Rows: output 1 - output 0, and the target.
[[nodiscard]] std::shared_ptr<const Metric> make_auc(std::optional<std::int64_t> ignore_index);

/// Sums: for each output the targets, their squares, the squared errors, the samples.
[[nodiscard]] std::shared_ptr<const Metric> make_r2();

[[nodiscard]] std::shared_ptr<const Metric> make_mean_absolute_error();

}  // namespace lockstep::objectives
