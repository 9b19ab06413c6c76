#pragma once

#include <filesystem>
#include <functional>
#include <vector>

#include <nlohmann/json.hpp>

#include "framework/storage/manifest.h"

namespace lockstep::testing {

/// The lines of a run's metrics, without times and rates.
[[nodiscard]] std::vector<nlohmann::json> metrics_of(const std::filesystem::path& run);

/// Checks that two runs ended alike: steps, loss, figures, digest, and each line of metrics.
void check_same(const std::filesystem::path& run, const std::filesystem::path& expected);

/// Changes what a checkpoint says, as if another version had saved it.
void rewrite_manifest(const std::filesystem::path& checkpoint,
                      const std::function<void(storage::Manifest& manifest)>& change);

}  // namespace lockstep::testing
