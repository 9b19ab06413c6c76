#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <string>

#include "framework/objectives/metric.h"

namespace lockstep::objectives {

/// The part of the counted targets whose class has one of the `k` largest outputs. Messages call it
/// `name`. See make_metric.
[[nodiscard]] std::shared_ptr<const Metric> make_top_accuracy(
    std::string name, std::int64_t k, std::optional<std::int64_t> ignore_index);

}  // namespace lockstep::objectives
