#pragma once

#include <ctime>
#include <filesystem>
#include <string>
#include <string_view>

namespace lockstep {

/// Makes the folder of a new run, `parent`/NAME-YYYYMMDD-HHMMSS in local time, and returns its
/// path. If it exists, -2, -3, … is appended. Two runs that start at once never get the same
/// folder. Throws ValueError for a name that is no single path component, and if the folder can't
/// be made.
[[nodiscard]] std::filesystem::path new_run_folder(const std::string& config_name,
                                                   const std::filesystem::path& parent = "runs",
                                                   std::time_t now = std::time(nullptr));

/// Claims `folder` for a new run and writes `config` to its config.yaml. The folder is created with
/// its parents, or exists and holds no run. Of several runs that claim it at once, one gets it.
/// Throws ValueError if it holds a run (a config.yaml, metrics.jsonl or result.json), is no folder,
/// or can't be written to. Temporary files of a run that was killed here are removed.
void claim_run_folder(const std::filesystem::path& folder, std::string_view config);

}  // namespace lockstep
