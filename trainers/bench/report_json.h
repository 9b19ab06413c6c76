#pragma once

#include <filesystem>
#include <string>

#include "trainers/bench/report.h"
#include "trainers/bench/training_report.h"

namespace lockstep::bench {

/// The whole report, times in seconds, rates in bytes a second.
[[nodiscard]] std::string to_json(const CollectivesReport& report);
[[nodiscard]] std::string to_json(const VdotReport& report);
[[nodiscard]] std::string to_json(const TrainingReport& report);

/// Makes `path` a file of this text. Error if it cannot be written.
void write_file(const std::filesystem::path& path, const std::string& text);

}  // namespace lockstep::bench
