#pragma once

#include <filesystem>
#include <functional>

#include "framework/storage/manifest.h"

namespace lockstep::testing {

/// Checks that two runs ended alike: steps, loss, figures, digest, and each line of metrics.
void check_same(const std::filesystem::path& run, const std::filesystem::path& expected);

/// Changes what a checkpoint says, as if another version had saved it.
void rewrite_manifest(const std::filesystem::path& checkpoint,
                      const std::function<void(storage::Manifest& manifest)>& change);

}  // namespace lockstep::testing
