#pragma once

#include <ctime>
#include <filesystem>
#include <string>
#include <string_view>

namespace lockstep {

/// Makes the folder of a new run, `parent`/NAME-YYYYMMDD-HHMMSS in local time, and returns its
/// path; -2, -3, … is appended where such a folder is there already. Two runs that start at once
/// never get the same one. Throws ValueError for a name that is no single path component and where
/// the folder can't be made.
[[nodiscard]] std::filesystem::path new_run_folder(const std::string& config_name,
                                                   const std::filesystem::path& parent = "runs",
                                                   std::time_t now = std::time(nullptr));

/// Makes `folder`, with its parents, a new run's, and writes `config` as its config.yaml: it is
/// created, or it is there and holds no run. Of several runs that want it at once, one gets it.
/// Throws ValueError where it holds one (a config.yaml, metrics.jsonl or result.json), where it is
/// no folder and where nothing can be written in it. Temporary files of a run that was killed here
/// go away.
void claim_run_folder(const std::filesystem::path& folder, std::string_view config);

}  // namespace lockstep
