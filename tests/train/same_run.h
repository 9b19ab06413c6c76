#pragma once

#include <filesystem>
#include <vector>

#include <nlohmann/json.hpp>

namespace lockstep::testing {

/// The lines of a run's metrics, without times and rates.
[[nodiscard]] std::vector<nlohmann::json> metrics_of(const std::filesystem::path& run);

/// Checks that two runs ended alike: steps, loss, figures, digest, and each line of metrics.
void check_same(const std::filesystem::path& run, const std::filesystem::path& expected);

}  // namespace lockstep::testing
