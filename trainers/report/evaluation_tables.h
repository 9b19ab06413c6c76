#pragma once

#include <cstdint>
#include <filesystem>
#include <vector>

#include "trainers/report/page.h"

namespace lockstep::report {

/// What the files of kEvaluationFiles in a run's folder tell of the last evaluations, as tables:
/// what was predicted for the targets of each class, the worst samples, and texts. Of evaluations
/// after `last_step` nothing: the run has gone on from before. DataError, naming it, for a file
/// that is damaged.
[[nodiscard]] std::vector<Table> evaluation_tables(const std::filesystem::path& run,
                                                   std::int64_t last_step);

}  // namespace lockstep::report
