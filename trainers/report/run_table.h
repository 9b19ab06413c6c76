#pragma once

#include <cstddef>
#include <filesystem>
#include <optional>
#include <string>
#include <vector>

#include <nlohmann/json.hpp>

#include "trainers/report/figures.h"
#include "trainers/report/run_record.h"

namespace lockstep::report {

/// A run of a list, as it is called there, with its figures.
struct ListedRun {
  std::string name;
  RunRecord record = {};
  std::vector<Figure> figures = {};
  std::string damage = {};  ///< why its folder can't be read; then nothing else is known
};

/// Reads the folder of a run, as read_run(); what is wrong with it becomes `damage`.
[[nodiscard]] ListedRun listed_run(const std::filesystem::path& folder, const TakeLine& take = {});

/// Calls runs by their folders' paths, if two of them have one name.
void tell_apart(std::vector<ListedRun>& runs);

/// The keys of the runs' configs whose values differ, in their order.
[[nodiscard]] std::vector<std::string> differing_keys(const std::vector<ListedRun>& runs);
/// The value of a key in a run's config; "" without it.
[[nodiscard]] std::string config_value(const ListedRun& run, const std::string& key);

/// The best first, by the figure that is meant by `name` (find_figure()), or by its best value
/// where it begins with "best_"; runs without one last. A training's loss is none where other runs
/// have an evaluation's. Or by a key of the configs, "optimizer.lr", the least first.
/// ValueError, with the nearest name, for a figure or a key that no run has, and for a figure of a
/// metric that this program does not know.
void sort_runs(std::vector<ListedRun>& runs, const std::string& name);

/// A table for people, a line a run: differing_keys(), the figures last measured and the best one,
/// of `sorted_by` or, without, of the validation set's deciding metric. With a terminal's `columns`
/// what matters least is left out where a line would be longer, but never what is sorted by. Names
/// are printable.
[[nodiscard]] std::string runs_text(const std::vector<ListedRun>& runs,
                                    const std::optional<std::string>& sorted_by,
                                    std::optional<int> columns);

/// The same for programs: an object a run, with these keys of its config.
[[nodiscard]] nlohmann::ordered_json runs_json(const std::vector<ListedRun>& runs,
                                               const std::vector<std::string>& config_keys = {});
/// And as a table with a header, in which each figure has a column for its last value, one for its
/// best and one for the step of that.
[[nodiscard]] std::string runs_csv(const std::vector<ListedRun>& runs,
                                   const std::vector<std::string>& config_keys = {});

/// A value as a field of CSV. A float stays one, "1.0", for readers that guess types by the first
/// rows (polars, DuckDB). NaN is "NaN": polars takes "nan" for a text.
[[nodiscard]] std::string csv_field(const nlohmann::ordered_json& value);

/// JSON as one line of ASCII, with its end. Names may hold any bytes: what is no UTF-8 is replaced.
[[nodiscard]] std::string json_line(const nlohmann::ordered_json& json);

/// A value as tables show it: "0.9023".
[[nodiscard]] std::string shown_value(double value);
/// "0.91 at 3500".
[[nodiscard]] std::string shown_best(const Point& best);
/// "0.88 at 4000 (best 0.91 at 3500)": without a step that is the run's last one, and without a
/// best value that is the last one.
[[nodiscard]] std::string shown_figure(const RunRecord& run, const Figure& figure);

/// The columns of a table's longest line.
[[nodiscard]] std::size_t text_width(const std::string& text);

/// The names of all figures, in the order in which runs have them.
[[nodiscard]] std::vector<std::string> figure_names(const std::vector<ListedRun>& runs);

}  // namespace lockstep::report
