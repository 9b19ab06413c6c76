#pragma once

#include <filesystem>

#include "trainers/report/page.h"

namespace lockstep::report {

/// The name of a run's report in its folder.
inline constexpr const char* kReportFile = "report.html";

/// What a run's folder has, as a page: its curves, grouped by their names ("test_loss" and
/// "validation_loss" stand over "loss", "parts.forward" and "parts.backward" over each other), what
/// happened on the way, its memory, figures and config. Throws as read_run().
[[nodiscard]] Page report_of(const std::filesystem::path& run);

/// Writes the report of a run to `file`, in place of one that is there: readers find the old one or
/// the new one. Throws as read_run(), and Error where it can't be written.
void write_report(const std::filesystem::path& run, const std::filesystem::path& file);

}  // namespace lockstep::report
