#include "trainers/report/run_table.h"

#include <algorithm>
#include <cmath>
#include <cstddef>
#include <limits>
#include <map>
#include <set>
#include <string_view>
#include <tuple>
#include <utility>

#include "framework/base/errors.h"
#include "framework/base/number_text.h"
#include "framework/base/range.h"
#include "framework/base/text.h"
#include "framework/base/text_table.h"
#include "framework/formats/csv.h"

namespace fs = std::filesystem;

namespace lockstep::report {
namespace {

using Json = nlohmann::ordered_json;

constexpr std::string_view kBest = "best_";

// A figure of a run, or its best value.
struct Sorting {
  std::string name;
  bool is_best = false;
  bool is_of_sets = false;  // some runs have it of an evaluation

  [[nodiscard]] const Figure* figure(const ListedRun& run) const {
    const Figure* const found = find_figure(run.figures, name);
    return found != nullptr && is_of_sets && found->name == name ? nullptr : found;
  }
  [[nodiscard]] std::optional<double> value(const ListedRun& run) const {
    const Figure* found = figure(run);
    if (found == nullptr || (is_best && !found->best)) return std::nullopt;
    const double value = is_best ? found->best->value : found->last.value;
    return std::isfinite(value) ? std::optional(value) : std::nullopt;
  }
};

Sorting sorting_by(const std::string& name, const std::vector<ListedRun>& runs) {
  const bool is_best = name.starts_with(kBest);
  Sorting sorting{is_best ? name.substr(kBest.size()) : name, is_best};
  sorting.is_of_sets = std::ranges::any_of(runs, [&](const ListedRun& run) {
    const Figure* const figure = find_figure(run.figures, sorting.name);
    return figure != nullptr && figure->name.ends_with("_" + sorting.name);
  });
  return sorting;
}

bool have_key(const std::vector<ListedRun>& runs, const std::string& key) {
  return std::ranges::any_of(runs,
                             [&](const ListedRun& run) { return run.record.config.contains(key); });
}

// Numbers come first, by their values.
void sort_by_key(std::vector<ListedRun>& runs, const std::string& key) {
  const auto rank = [&](const ListedRun& run) {
    const std::string text = config_value(run, key);
    auto number = parse_number<double>(text);
    if (number && !std::isfinite(*number)) number.reset();
    return std::tuple(text.empty(), !number, number.value_or(0), number ? "" : text);
  };
  std::ranges::stable_sort(runs, {}, rank);
}

// "3 min": the largest unit of which there is one at least.
std::string shown_age(double seconds) {
  const std::vector<std::pair<double, const char*>> units{
      {86400, " d"}, {3600, " h"}, {60, " min"}};
  for (const auto& [size, unit] : units) {
    if (seconds >= size) return formatted("%.0f", std::floor(seconds / size)) + unit;
  }
  return formatted("%.0f s", std::floor(seconds));
}

// A column of the table for people; `rank` 0 is the last to be left out.
struct Column {
  int rank;
  char alignment;
  std::string name;
  std::vector<std::string> cells = {};
};

std::string text_of(const std::vector<Column>& columns, int max_rank) {
  std::string alignment;
  TextTable rows(columns.front().cells.size() + 1);
  for (const Column& column : columns) {
    if (column.rank > max_rank) continue;
    alignment += column.alignment;
    rows[0].push_back(column.name);
    for (std::size_t i = 1; i < rows.size(); ++i) rows[i].push_back(column.cells[i - 1]);
  }
  return table_text(rows, alignment);
}

// The figure whose best value is shown where none is asked for: that by which the validation set
// decides.
const Figure* deciding_figure(const ListedRun& run) {
  const auto metric = run.record.config.find("checkpoint.best");
  const bool is_named = metric != run.record.config.end() && metric->second != "none";
  const std::string name = "validation_" + (is_named ? metric->second : "loss");
  const auto found = std::ranges::find(run.figures, name, &Figure::name);
  return found == run.figures.end() ? nullptr : &*found;
}

std::string best_cell(const ListedRun& run, const std::optional<Sorting>& sorting) {
  const Figure* figure = sorting ? sorting->figure(run) : deciding_figure(run);
  if (figure == nullptr || !figure->best) return "";
  return str(figure->name, " ", shown_best(*figure->best));
}

Json number(std::optional<double> value) {
  return value && std::isfinite(*value) ? Json(*value) : Json();
}

Json run_json(const ListedRun& run, const std::vector<std::string>& config_keys) {
  if (!run.damage.empty())
    return {{"run", run.name}, {"status", "damaged"}, {"damage", run.damage}};
  const RunRecord& record = run.record;
  Json json{{"run", run.name},
            {"folder", record.folder.string()},
            {"status", name_of(record.status)},
            {"step", record.end.step},
            {"samples", record.end.samples},
            {"elapsed_s", number(record.end.elapsed_s)},
            {"age_s", number(record.age_s)},
            {"samples_per_s", number(samples_per_s(record))}};
  if (const std::int64_t resumes = resumes_of(record); resumes > 0) json["resumes"] = resumes;
  if (record.checkpoint) json["checkpoint"] = *record.checkpoint;
  if (const auto restarts = record.result.find("restarts"); restarts != record.result.end()) {
    json["restarts"] = *restarts;
  }
  Json& figures = json["figures"] = Json::object();
  for (const Figure& figure : run.figures) {
    Json& entry = figures[figure.name] = {{"last", number(figure.last.value)}};
    if (!figure.best) continue;
    entry["best"] = figure.best->value;
    entry["best_step"] = figure.best->step;
  }
  if (!record.failure.empty()) json["failure"] = record.failure;
  json["parameters_sha256"] = parameters_sha256(record);
  for (const std::string& key : config_keys) {
    const auto value = record.config.find(key);
    json["config"][key] = value == record.config.end() ? Json() : Json(value->second);
  }
  return json;
}

}  // namespace

ListedRun listed_run(const fs::path& folder, const TakeLine& take) {
  const fs::path path = folder.has_filename() ? folder : folder.parent_path();
  ListedRun run{.name = path.filename().string()};
  try {
    run.record = read_run(path, take);
    run.figures = figures_of(run.record);
  } catch (const std::exception& error) {
    run.damage = error.what();
    run.record.folder = path;
    run.record.age_s = std::numeric_limits<double>::infinity();  // behind those that are known
  }
  return run;
}

void tell_apart(std::vector<ListedRun>& runs) {
  const std::vector<std::string> all = mapped(runs, &ListedRun::name);
  if (std::set<std::string>(all.begin(), all.end()).size() == all.size()) return;
  for (ListedRun& run : runs) run.name = run.record.folder.string();
}

std::string config_value(const ListedRun& run, const std::string& key) {
  const auto value = run.record.config.find(key);
  return value == run.record.config.end() ? "" : value->second;
}

std::vector<std::string> differing_keys(const std::vector<ListedRun>& runs) {
  std::map<std::string, std::map<std::string, std::size_t>> counts;  // of values, by key
  std::size_t whole = 0;
  for (const ListedRun& run : runs) {
    if (!run.damage.empty()) continue;
    ++whole;
    for (const auto& [key, value] : run.record.config) ++counts[key][value];
  }
  std::vector<std::string> keys;
  for (const auto& [key, values] : counts) {
    if (values.begin()->second < whole) keys.push_back(key);
  }
  return keys;
}

void sort_runs(std::vector<ListedRun>& runs, const std::string& name) {
  if (have_key(runs, name)) return sort_by_key(runs, name);
  const Sorting sorting = sorting_by(name, runs);
  const Figure* first = nullptr;
  for (const ListedRun& run : runs) {
    if (first == nullptr) first = sorting.figure(run);
  }
  if (first == nullptr) {
    std::vector<std::string> known = figure_names(runs);
    const auto full_names = known;
    for (const std::string& full : full_names) {
      const std::size_t prefix = full.find('_');
      if (prefix != std::string::npos) known.push_back(full.substr(prefix + 1));
    }
    for (const ListedRun& run : runs) {
      for (const auto& [key, value] : run.record.config) known.push_back(key);
    }
    throw ValueError(str("no run here has the figure or key '", cut(name), "'",
                         did_you_mean(name, known), "; there ",
                         full_names.size() == 1 ? "is " : "are ",
                         full_names.empty() ? "none" : join(full_names)));
  }
  const std::optional<bool> is_higher = higher_is_better(first->name);
  require(is_higher.has_value(), "which ", first->name,
          " is the better is not known: this program has no such metric");
  std::ranges::stable_sort(runs, [&](const ListedRun& a, const ListedRun& b) {
    const auto of_a = sorting.value(a);
    const auto of_b = sorting.value(b);
    if (!of_a || !of_b) return of_a.has_value();
    return *is_higher ? *of_a > *of_b : *of_a < *of_b;
  });
}

std::string runs_text(const std::vector<ListedRun>& runs,
                      const std::optional<std::string>& sorted_by, std::optional<int> columns) {
  const bool is_by_key = sorted_by && have_key(runs, *sorted_by);
  const auto sorting =
      sorted_by && !is_by_key ? std::optional(sorting_by(*sorted_by, runs)) : std::nullopt;
  std::vector<ListedRun> whole;
  std::string damaged;
  for (const ListedRun& run : runs) {
    if (run.damage.empty()) {
      whole.push_back(run);
    } else {
      damaged += printable(str("damaged: ", run.name, ": ", run.damage), "") + "\n";
    }
  }
  if (whole.empty()) return damaged;
  std::vector<Column> table;
  const auto add = [&](int rank, char alignment, const std::string& name, const auto& cell) {
    table.push_back({rank, alignment, name, mapped(whole, cell)});
  };
  add(0, 'l', "run", [](const ListedRun& run) { return printable(run.name, ""); });
  add(1, 'l', "status",
      [](const ListedRun& run) { return std::string(name_of(run.record.status)); });
  add(3, 'r', "step", [](const ListedRun& run) { return str(run.record.end.step); });
  const auto times_resumed = [](const ListedRun& run) { return resumes_of(run.record); };
  if (std::ranges::any_of(whole, [&](const ListedRun& run) { return times_resumed(run) > 0; })) {
    add(3, 'r', "resumes", [&](const ListedRun& run) { return str(times_resumed(run)); });
  }
  constexpr int kFirstKeys = 3;  // that matter more than figures
  std::vector<std::string> keys = differing_keys(whole);
  const std::vector<std::string> names = figure_names(whole);
  int rank = 4;
  int late = rank + kFirstKeys + static_cast<int>(names.size());
  if (is_by_key && std::ranges::count(keys, *sorted_by) == 0) keys.push_back(*sorted_by);
  for (const std::string& key : keys) {
    constexpr std::size_t kLongest = 24;
    add(key == sorted_by        ? 0
        : rank < 4 + kFirstKeys ? rank++
                                : late++,
        'r', printable(key, ""),
        [&](const ListedRun& run) { return cut(printable(config_value(run, key), ""), kLongest); });
  }
  for (const std::string& name : names) {
    const bool is_sorted_by = sorting && std::ranges::any_of(whole, [&](const ListedRun& run) {
                                const Figure* figure = sorting->figure(run);
                                return figure != nullptr && figure->name == name;
                              });
    add(is_sorted_by && !sorting->is_best ? 0 : rank++, 'r', name, [&](const ListedRun& run) {
      const auto figure = std::ranges::find(run.figures, name, &Figure::name);
      return figure == run.figures.end() ? "" : shown_value(figure->last.value);
    });
  }
  add(sorting && sorting->is_best ? 0 : 2, 'l', "best",
      [&](const ListedRun& run) { return best_cell(run, sorting); });
  add(2, 'r', "age", [](const ListedRun& run) { return shown_age(run.record.age_s); });
  rank = late;
  std::string text = text_of(table, rank);
  while (columns && rank > 0 && text_width(text) > static_cast<std::size_t>(*columns)) {
    text = text_of(table, --rank);
  }
  return text + damaged;
}

Json runs_json(const std::vector<ListedRun>& runs, const std::vector<std::string>& config_keys) {
  Json json = Json::array();
  for (const ListedRun& run : runs) json.push_back(run_json(run, config_keys));
  return json;
}

std::string runs_csv(const std::vector<ListedRun>& runs,
                     const std::vector<std::string>& config_keys) {
  std::vector<std::string> header{"run",      "folder",     "status",       "step",
                                  "samples",  "elapsed_s",  "age_s",        "resumes",
                                  "restarts", "checkpoint", "samples_per_s"};
  const std::size_t fixed = header.size();
  const std::vector<std::string> figures = figure_names(runs);
  for (const std::string& name : figures) {
    for (const char* form : {"", "best_", "best_step_"}) header.push_back(form + name);
  }
  header.insert(header.end(), {"parameters_sha256", "failure", "damage"});
  header.insert(header.end(), config_keys.begin(), config_keys.end());
  std::string text = formats::csv_line(header);
  for (const Json& run : runs_json(runs, config_keys)) {
    const auto field = [](const Json& object, const std::string& name) {
      return object.contains(name) ? csv_field(object[name]) : "";
    };
    std::vector<std::string> fields;
    for (std::size_t i = 0; i < fixed; ++i) fields.push_back(field(run, header[i]));
    for (const std::string& name : figures) {
      const Json figure = run.value("figures", Json::object()).value(name, Json::object());
      for (const char* part : {"last", "best", "best_step"}) fields.push_back(field(figure, part));
    }
    for (const char* name : {"parameters_sha256", "failure", "damage"})
      fields.push_back(field(run, name));
    const Json config = run.value("config", Json::object());
    for (const std::string& key : config_keys) fields.push_back(field(config, key));
    text += formats::csv_line(fields);
  }
  return text;
}

std::string csv_field(const Json& value) {
  if (value.is_null()) return "";
  if (value.is_string()) return value.get<std::string>();
  if (!value.is_number_float()) return value.dump();
  const auto number = value.get<double>();
  return std::isnan(number) ? "NaN" : float_text(number);
}

std::string json_line(const Json& json) {
  return json.dump(-1, ' ', /*ensure_ascii=*/true, Json::error_handler_t::replace) + "\n";
}

std::string shown_value(double value) {
  return std::isfinite(value) ? str(value) : "not finite";
}

std::string shown_best(const Point& best) {
  return str(shown_value(best.value), " at ", best.step);
}

std::string shown_figure(const RunRecord& run, const Figure& figure) {
  const Point& last = figure.last;
  const bool had_better = figure.best && figure.best->value != last.value;
  return str(last.step == run.end.step ? shown_value(last.value) : shown_best(last),
             had_better ? str(" (best ", shown_best(*figure.best), ")") : "");
}

std::size_t text_width(const std::string& text) {
  std::size_t width = 0;
  for (std::size_t begin = 0; begin < text.size();) {
    const std::size_t end = text.find('\n', begin);
    width = std::max(width, text_columns(std::string_view(text).substr(begin, end - begin)));
    begin = end + 1;
  }
  return width;
}

std::vector<std::string> figure_names(const std::vector<ListedRun>& runs) {
  std::vector<std::string> names;
  std::set<std::string> known;
  for (const ListedRun& run : runs) {
    for (const Figure& figure : run.figures) {
      if (known.insert(figure.name).second) names.push_back(figure.name);
    }
  }
  return names;
}

}  // namespace lockstep::report
