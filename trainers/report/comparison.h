#pragma once

#include <filesystem>
#include <optional>
#include <string>
#include <vector>

#include <nlohmann/json.hpp>

#include "trainers/report/page.h"
#include "trainers/report/run_table.h"

namespace lockstep::report {

/// Runs side by side.
struct Comparison {
  std::vector<ListedRun> runs;  ///< called by their folders' names or, where two are alike, paths
  std::vector<std::string> differing;  ///< the keys of their configs whose values do
  bool shares_steps = false;           ///< whether two runs have a figure of one step
  /// … and all such are the same: a run that has stopped on its way has more than others.
  bool has_same_figures = false;
  std::optional<bool> has_same_parameters = {};  ///< none: not all have a result

  /// Whether only time tells them apart.
  [[nodiscard]] bool are_equal() const {
    return differing.empty() && has_same_figures && has_same_parameters == true;
  }
};

/// Reads the folders of two runs or more. Throws as read_run().
[[nodiscard]] Comparison compare(const std::vector<std::filesystem::path>& folders);

/// For people: a column a run, of what differs in their configs and what they came to, and a line
/// that says how far they are equal. Where all columns are wider than a terminal of so many
/// `columns`, they stand in several tables, and long values are cut.
[[nodiscard]] std::string comparison_text(const Comparison& comparison, std::optional<int> columns);

/// For programs: what differs by key, with each run's value, and the runs as runs_json() has them.
[[nodiscard]] nlohmann::ordered_json comparison_json(const Comparison& comparison);

/// For browsers: each curve of the runs' reports with those of all runs over each other, and the
/// table. Throws as read_run().
[[nodiscard]] Page comparison_page(const Comparison& comparison);

}  // namespace lockstep::report
