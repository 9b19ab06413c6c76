#pragma once

#include <filesystem>
#include <string>

#include "trainers/report/page.h"

namespace lockstep::report {

/// What a run's folder has, as a page: its curves, grouped by their names ("test_loss" and
/// "validation_loss" stand over "loss", "parts.forward" and "parts.backward" over each other), what
/// happened on the way, its memory, figures and config. Whoever knows better than the folder what
/// has become of the run says so by `status`. Throws as read_run().
[[nodiscard]] Page report_of(const std::filesystem::path& run, const std::string& status = {});

/// Writes the report of a run to `file`, in place of one that is there: readers find the old one or
/// the new one. Throws as read_run(), and Error where it can't be written.
void write_report(const std::filesystem::path& run, const std::filesystem::path& file,
                  const std::string& status = {});

}  // namespace lockstep::report
