#include "trainers/report/comparison.h"

#include <algorithm>
#include <array>
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <limits>
#include <map>
#include <utility>

#include "framework/base/errors.h"
#include "framework/base/range.h"
#include "framework/base/text.h"
#include "framework/base/text_table.h"
#include "framework/telemetry/progress.h"
#include "trainers/report/report.h"

namespace fs = std::filesystem;

namespace lockstep::report {
namespace {

using Json = nlohmann::ordered_json;

// What a run's result says of how it ran, beside its config.
constexpr std::array kCircumstances{"replicas", "workers",  "threads_per_replica",
                                    "hosts",    "launch",   "backend",
                                    "blas",     "libtorch", "restarts"};

constexpr const char* kMark = " *";

// A row of the table: what it says of each run.
struct Row {
  std::string name;
  std::vector<std::string> cells = {};

  [[nodiscard]] bool differs() const {
    return std::ranges::any_of(cells,
                               [&](const std::string& cell) { return cell != cells.front(); });
  }
};

// Whether the figures of runs are the same at the steps that they share: of each figure at each
// step the value of the first run that has it is kept, 16 bytes.
class SharedFigures {
 public:
  // A line of the next run's metrics.
  void add(const MetricsLine& line) {
    if (are_known()) return;
    for (const auto& [name, value] : line.numbers) {
      if (is_figure(name)) figures_[name].own.push_back({line.step, value});
    }
  }
  // All lines of this run are there.
  void end_run() {
    for (auto& [name, figure] : figures_) end_run(figure);
    if (are_known()) figures_.clear();
  }
  [[nodiscard]] bool are_shared() const { return are_shared_; }
  [[nodiscard]] bool are_same() const { return are_shared_ && are_same_; }

 private:
  struct Value {
    std::int64_t step;
    double value;
  };
  struct Values {
    std::vector<Value> all;  // of the runs before, by step
    std::vector<Value> own;  // of the run that is read
  };

  // What other runs have changes nothing then.
  [[nodiscard]] bool are_known() const { return are_shared_ && !are_same_; }

  void end_run(Values& values) {
    auto& [all, own] = values;
    std::ranges::stable_sort(own, {}, &Value::step);
    const auto again = std::ranges::unique(own, {}, &Value::step);
    own.erase(again.begin(), again.end());
    std::vector<Value> merged;
    merged.reserve(std::max(all.size(), own.size()));
    auto known = all.begin();
    for (const Value& its : own) {
      while (known != all.end() && known->step < its.step) merged.push_back(*known++);
      if (known == all.end() || known->step > its.step) {
        merged.push_back(its);
        continue;
      }
      are_shared_ = true;
      are_same_ = are_same_ && (known->value == its.value ||
                                (std::isnan(known->value) && std::isnan(its.value)));
    }
    merged.insert(merged.end(), known, all.end());
    all = std::move(merged);
    own = {};
  }

  std::map<std::string, Values> figures_;
  bool are_shared_ = false, are_same_ = true;
};

std::string of_result(const ListedRun& run, const std::string& field) {
  const auto value = run.record.result.find(field);
  if (value == run.record.result.end()) return "";
  return value->is_string() ? value->get<std::string>() : value->dump();
}

const Figure* figure_called(const ListedRun& run, const std::string& name) {
  const auto found = std::ranges::find(run.figures, name, &Figure::name);
  return found == run.figures.end() ? nullptr : &*found;
}

// A figure of all runs; behind the best of several values stands "*".
Row row_of(const std::string& name, const std::vector<ListedRun>& runs) {
  Row row{name};
  std::vector<double> values;  // NaN where there is none
  for (const ListedRun& run : runs) {
    const Figure* const figure = figure_called(run, name);
    row.cells.push_back(figure == nullptr ? "" : shown_figure(run.record, *figure));
    values.push_back(figure == nullptr || !figure->best ? std::nan("") : figure->best->value);
  }
  double best = std::nan("");
  for (const double value : values) {
    const bool is_better = higher_is_better(name) == true ? value > best : value < best;
    if (is_better || std::isnan(best)) best = value;
  }
  const bool has_others =
      std::ranges::any_of(values, [&](double value) { return value < best || value > best; });
  for (std::size_t i = 0; i < values.size() && has_others; ++i) {
    if (values[i] == best) row.cells[i] += kMark;
  }
  return row;
}

// All rows but an empty one between what differs in the configs and what the runs came to.
std::vector<Row> rows_of(const Comparison& comparison) {
  std::vector<Row> rows;
  const auto add = [&](const std::string& name, const auto& cell) {
    rows.push_back({name, mapped(comparison.runs, cell)});
  };
  for (const std::string& key : comparison.differing) {
    add(key, [&](const ListedRun& run) { return config_value(run, key); });
  }
  if (!rows.empty()) rows.emplace_back();
  add("status", [](const ListedRun& run) { return std::string(name_of(run.record.status)); });
  add("step", [](const ListedRun& run) { return str(run.record.end.step); });
  add("time", [](const ListedRun& run) { return duration_text(run.record.end.elapsed_s); });
  add("samples/s", [](const ListedRun& run) {
    const std::optional<double> rate = samples_per_s(run.record);
    return rate ? formatted(*rate < 100 ? "%.3g" : "%.0f", *rate) : "";
  });
  for (const std::string& name : figure_names(comparison.runs))
    rows.push_back(row_of(name, comparison.runs));
  const auto add_where_differing = [&](const std::string& name, const auto& cell) {
    add(name, cell);
    if (!rows.back().differs()) rows.pop_back();
  };
  add_where_differing("resumes", [](const ListedRun& run) { return str(resumes_of(run.record)); });
  for (const std::string field : kCircumstances) {
    add_where_differing(field, [&](const ListedRun& run) { return of_result(run, field); });
  }
  add("parameters_sha256",
      [](const ListedRun& run) { return parameters_sha256(run.record).substr(0, 16); });
  return rows;
}

// The columns of these runs.
std::string table_of(const std::vector<Row>& rows, const std::vector<std::string>& names,
                     const Range& runs, std::size_t longest) {
  TextTable table;
  const auto add = [&](const std::string& name, const std::vector<std::string>& cells) {
    auto& line = table.emplace_back(1, name);
    for (std::int64_t i = runs.offset; i < runs.end() && !cells.empty(); ++i) {
      line.push_back(cut(printable(cells[static_cast<std::size_t>(i)], ""), longest));
    }
  };
  add("", names);
  for (const Row& row : rows) add(row.name, row.cells);
  return table_text(table, "l");
}

std::string verdict_of(const Comparison& comparison) {
  if (comparison.are_equal()) {
    return "Equal but for time: their configs, their figures at each step and their parameters are "
           "the same.";
  }
  const auto& same_parameters = comparison.has_same_parameters;
  const auto differ = std::ssize(comparison.differing);
  return str(differ == 0 ? "Their configs are the same."
                         : str("Their configs differ in ", counted(differ, "key"), "."),
             comparison.has_same_figures
                 ? " Their figures are the same at each step that they share."
             : comparison.shares_steps ? " Their figures differ."
                                       : " They share no step with figures.",
             !same_parameters   ? " Not all have ended: only then are parameters compared."
             : *same_parameters ? " Their parameters are the same."
                                : " Their parameters differ.");
}

}  // namespace

Comparison compare(const std::vector<fs::path>& folders) {
  Comparison comparison;
  SharedFigures figures;
  for (const fs::path& folder : folders) {
    const auto add = [&](const MetricsLine& line) { figures.add(line); };
    ListedRun& run = comparison.runs.emplace_back(listed_run(folder, add));
    require<DataError>(run.damage.empty(), run.damage);
    figures.end_run();
  }
  tell_apart(comparison.runs);
  const std::vector<ListedRun>& runs = comparison.runs;
  const ListedRun& first = runs.front();
  const auto all = [&](const auto& is_as_first) { return std::ranges::all_of(runs, is_as_first); };
  comparison.differing = differing_keys(runs);
  comparison.shares_steps = figures.are_shared();
  comparison.has_same_figures = figures.are_same();
  const std::string sha256 = parameters_sha256(first.record);
  if (all([](const ListedRun& run) { return !parameters_sha256(run.record).empty(); })) {
    comparison.has_same_parameters =
        all([&](const ListedRun& run) { return parameters_sha256(run.record) == sha256; });
  }
  return comparison;
}

std::string comparison_text(const Comparison& comparison, std::optional<int> columns) {
  constexpr std::size_t kLongest = 60, kLeast = 12;
  const auto names = mapped(comparison.runs, &ListedRun::name);
  const std::vector<Row> rows = rows_of(comparison);
  const auto room = static_cast<std::size_t>(columns.value_or(std::numeric_limits<int>::max()));
  std::size_t of_names = 0;
  for (const Row& row : rows)
    of_names = std::max(of_names, row.name.size() + 3);  // two blanks and a "…"
  const std::size_t longest = std::clamp(room - std::min(room, of_names), kLeast, kLongest);
  std::string text;
  for (Range part{0, 1}; part.offset < std::ssize(names); part = {part.end(), 1}) {
    std::string table = table_of(rows, names, part, longest);
    while (part.end() < std::ssize(names)) {
      const std::string wider = table_of(rows, names, {part.offset, part.size + 1}, longest);
      if (text_width(wider) > room) break;
      table = wider;
      ++part.size;
    }
    text += table + "\n";
  }
  const bool has_marks = std::ranges::any_of(rows, [](const Row& row) {
    return std::ranges::any_of(row.cells, [](auto& cell) { return cell.ends_with(kMark); });
  });
  return str(text, has_marks ? "* is the best of its row.\n" : "", verdict_of(comparison), "\n");
}

Json comparison_json(const Comparison& comparison) {
  Json differences = Json::object();
  for (const std::string& key : comparison.differing) {
    for (const ListedRun& run : comparison.runs) {
      const auto value = run.record.config.find(key);
      differences[key].push_back(value == run.record.config.end() ? Json() : Json(value->second));
    }
  }
  const auto& same_parameters = comparison.has_same_parameters;
  return {{"equal_but_for_time", comparison.are_equal()},
          {"same_figures", comparison.has_same_figures},
          {"same_parameters", same_parameters ? Json(*same_parameters) : Json()},
          {"differences", differences},
          {"runs", runs_json(comparison.runs)}};
}

Page comparison_page(const Comparison& comparison) {
  constexpr std::size_t kTitleNames = 5;
  Page page{.title = listed(mapped(comparison.runs, &ListedRun::name), kTitleNames)};
  page.facts.emplace_back("verdict", verdict_of(comparison));
  std::vector<std::string> head{""};
  std::map<std::string, std::size_t> places;  // of the charts, by their names
  for (const ListedRun& run : comparison.runs) {
    head.push_back(run.name);
    for (Chart& of_run : report_of(run.record.folder).charts) {
      for (Curve& curve : of_run.curves) {
        // Each curve of a run's report is one of many here.
        const std::string name =
            curve.name == of_run.name ? curve.name : str(of_run.name, ", ", curve.name);
        const auto [place, is_new] = places.try_emplace(name, page.charts.size());
        if (is_new) page.charts.push_back({.name = name});
        page.charts[place->second].curves.push_back({run.name, std::move(curve.points)});
      }
    }
  }
  std::vector<std::vector<std::string>> of_configs, of_results;
  auto* rows = comparison.differing.empty() ? &of_results : &of_configs;
  for (Row& row : rows_of(comparison)) {
    if (row.cells.empty()) {
      rows = &of_results;
      continue;
    }
    row.cells.insert(row.cells.begin(), row.name);
    rows->push_back(std::move(row.cells));
  }
  if (!of_configs.empty())
    page.tables.push_back({"What differs in their configs", head, of_configs});
  page.tables.push_back({"What they came to", head, of_results});
  return page;
}

}  // namespace lockstep::report
