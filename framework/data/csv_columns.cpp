#include "framework/data/csv_columns.h"

#include <algorithm>
#include <iterator>
#include <limits>
#include <map>
#include <optional>
#include <set>
#include <utility>

#include <ATen/ops/empty.h>

#include "framework/base/errors.h"
#include "framework/base/logging.h"
#include "framework/base/range.h"
#include "framework/base/text.h"
#include "framework/data/csv_dates.h"
#include "framework/data/csv_names.h"
#include "framework/data/csv_texts.h"
#include "framework/formats/data_file.h"
#include "framework/formats/decimal.h"
#include "framework/keys/yaml_text.h"

namespace lockstep::data {
namespace {

using formats::CsvFile;
using Names = std::vector<std::string>;

constexpr std::size_t kMostSeen = 1000;  // of a column's cells, to tell texts from numbers

std::string in_single_quotes(const std::string& name) {
  return str("'", cut(name), "'");
}

ColumnForm categories_of(const TableCells& cells, const std::string& name,
                         const CsvSetOptions& options) {
  const std::size_t column = cells.file().column(name);
  ColumnForm form{
      .categories = names_of(cells, column, [&](std::size_t row) { return cells.is_fitted(row); })};
  std::int64_t rows = 0;
  for (std::size_t row = 0; row < cells.rows(); ++row) {
    if (!cells.is_fitted(row)) continue;
    ++rows;
    form.has_missing |= cells.fills_missing() && cells.is_missing(row, column);
  }
  form.has_other = options.unseen == CsvUnseen::other;
  if (form.categories.empty()) {
    formats::fail_file(cells.path(), str("the column '", cut(name),
                                         "' has no category in the training set: data.ignore "
                                         "leaves it out"));
  }
  warn_of_alike(cells, name, "categories", form.categories);
  constexpr std::int64_t kMany = 50;
  const auto count = std::ssize(form.categories);
  if (count > kMany && 2 * count > rows) {
    log_warning(str("csv: column '", cut(name), "' of '", cells.path(), "' has ", count,
                    " categories in ", rows,
                    " rows: are these names or numbers of rows, data.ignore leaves them out"));
  }
  return form;
}

// A cell's place among a column's categories; none where it has none, which is told.
std::optional<std::int64_t> category_of(TableCells& cells, std::size_t row, std::size_t column,
                                        const ColumnForm& form, NameTable& names) {
  const std::int64_t count = std::ssize(form.categories);
  const std::int64_t other = count + (form.has_missing ? 1 : 0);
  const auto told = [&](const char* what) {
    return str(what, " of the training set's categories: ",
               shortened(formats::quoted(form.categories), 200),
               cells.is_fitted(row) ? "" : " (this row is of the part that data.validation takes)",
               "; data.unseen: other trains with an input for such");
  };
  if (cells.allows_missing() && cells.is_missing(row, column)) {
    if (!cells.fills_missing()) return std::nullopt;  // left out, or damaged
    if (form.has_missing) return count;
    if (form.has_other) return other;
    cells.add_missing(row, column, told("is missing, and a missing value is none"));
    return std::nullopt;
  }
  if (const std::int64_t found = names.find(cells.text(row, column)); found >= 0) return found;
  if (cells.says_nothing(row, column)) return std::nullopt;
  if (form.has_other) return other;
  cells.add(row, column, told("is none"));
  return std::nullopt;
}

// Writes a column's categories from input `begin` on. Returns how many are of those that the
// training set does not have.
std::int64_t write_categories(TableCells& cells, const std::string& name, const ColumnForm& form,
                              std::int64_t begin, const at::Tensor& into) {
  NameTable names(form.categories);
  const std::size_t column = cells.file().column(name);
  const std::int64_t width = into.size(1);
  float* values = into.data_ptr<float>() + begin;
  std::int64_t unseen = 0;
  for (std::size_t row = 0; row < cells.rows(); ++row, values += width) {
    std::fill_n(values, form.inputs(), 0.0F);
    const auto place = category_of(cells, row, column, form, names);
    if (!place) continue;
    values[*place] = 1;
    const bool is_unseen = form.has_other && *place + 1 == form.inputs();
    if (is_unseen && !cells.leaves_out(row)) ++unseen;
  }
  names.tell_merged(cells, name);
  return unseen;
}

// What is wrong with a cell that is no date, and what may read it.
std::string no_date_rule(const TableCells& cells, std::size_t column, const std::string& format) {
  const bool is_iso = format == kIsoDates;
  const std::string rule = is_iso ? "is no date such as 2024-03-01 or 2024-03-01T12:30:00"
                                  : str("is no date as data.date_format has it: '", format, "'");
  const std::string other = date_format_of(cells, column);
  if (!other.empty()) {
    return str(rule, "; data.date_format: ", keys::yaml_text(other), " reads all of the column");
  }
  return str(rule, is_iso ? "; data.date_format says how others are written" : "");
}

// Writes the parts of a column's dates, the first of which has the place `first`.
void write_dates(TableCells& cells, const ColumnForm& form, const std::string& format,
                 NumberPlace first, NumberColumns& numbers) {
  const std::size_t column = cells.file().column(first.column);
  std::vector<std::vector<double>> parts(
      form.date_parts.size(),
      std::vector<double>(cells.rows(), std::numeric_limits<double>::quiet_NaN()));
  std::string rule;
  for (std::size_t row = 0; row < cells.rows(); ++row) {
    if (cells.allows_missing() && cells.is_missing(row, column)) continue;
    const auto moment = moment_of(cells.text(row, column), format);
    if (!moment) {
      if (rule.empty()) rule = no_date_rule(cells, column, format);
      cells.add(row, column, rule);
      continue;
    }
    for (std::size_t i = 0; i < parts.size(); ++i) {
      parts[i][row] = date_part(*moment, form.date_parts[i]);
    }
  }
  for (const std::vector<double>& part : parts) {
    numbers.write(part, column, first);
    ++first.number;
    ++first.input;
  }
}

at::Tensor room_for(const TableCells& cells, std::size_t columns, std::int64_t width,
                    std::size_t together) {
  formats::require_memory(
      cells.path(),
      cells.rows() *
          (static_cast<std::size_t>(width) * sizeof(float) + 2 * together * sizeof(double)),
      str("its ", cells.rows(), " rows of ", columns, " columns take, as ",
          width == static_cast<std::int64_t>(columns) ? "numbers," : str(width, " numbers,")));
  return at::empty({static_cast<std::int64_t>(cells.rows()), width}, at::kFloat);
}

}  // namespace

TableColumns columns_of(const std::string& path, const CsvFile& file,
                        const CsvSetOptions& options) {
  std::set<std::size_t> taken;
  const auto take = [&](const std::string& name) {
    require(taken.insert(file.column(name)).second,
            "csv: data.target and data.features have the column '", cut(name), "' twice");
  };
  require(!options.target.empty(), "csv: data.target is empty, but must name a column of '", path,
          "', which has ", formats::quoted(file.header()));
  require(options.task == CsvSetOptions::Task::regression || options.target.size() == 1,
          "csv: data.target has ", options.target.size(),
          " columns, but classification has classes of one");
  for (const std::string& name : options.target) take(name);
  std::set<std::size_t> ignored;
  for (const std::string& name : options.ignore) {
    ignored.insert(file.column(name));
    require(!taken.contains(file.column(name)), "csv: data.ignore has the target '", cut(name),
            "'");
  }
  Names features = options.features;
  std::erase_if(features, [&](const auto& name) { return ignored.contains(file.column(name)); });
  for (std::size_t i = 0; i < file.columns() && options.features.empty(); ++i) {
    const std::string& name = file.header()[i];
    if (!formats::trimmed(name).empty() && !taken.contains(i) && !ignored.contains(i)) {
      features.push_back(name);
    }
  }
  if (options.features.empty() && formats::trimmed(file.header()[0]).empty()) {
    log_info(str("csv: the first column of '", path,
                 "' has no name: it is taken for an index and left out"));
  }
  for (const std::string& name : features) {
    if (!name.starts_with("Unnamed: ") || !options.features.empty()) continue;
    log_warning(str("csv: '", cut(name), "' of '", path, "' is pandas' name for an index, and an ",
                    "input: data.ignore: [\"", cut(name), "\"] leaves it out"));
  }
  require(!features.empty(), "csv: '", path, "' has no column but the target",
          options.ignore.empty() ? "" : " and those of data.ignore");
  if (!options.features.empty()) std::ranges::for_each(features, take);
  std::map<std::size_t, const char*> named;
  const auto check = [&](const char* key, const Names& names) {
    for (const std::string& name : names) {
      const std::size_t column = file.column(name);
      require(std::ranges::any_of(features,
                                  [&](const auto& input) { return file.column(input) == column; }),
              "csv: ", key, " has the column '", cut(name), "', which is no input");
      const auto [found, is_new] = named.emplace(column, key);
      require(is_new, "csv: the column '", cut(name), "' stands in ", found->second, " and ", key);
    }
  };
  check("data.categories", options.categories);
  check("data.dates", options.dates);
  return {std::move(features), options.target};
}

void warn_of_alike(const TableCells& cells, const std::string& column, const char* what,
                   const Names& names) {
  std::map<std::pair<std::optional<formats::Decimal>, std::string>, std::string> known;
  for (const std::string& name : names) {
    const auto number = formats::Decimal::of(name);
    const auto [found, is_new] = known.emplace(std::pair(number, number ? "" : lower(name)), name);
    if (is_new) continue;
    return log_warning(
        str("csv: column '", cut(column), "' of '", cells.path(), "' has ", what,
            number ? " that are one number" : " that differ by the case of letters alone", ": '",
            cut(found->second), "' and '", cut(name), "'"));
  }
}

void check_header(const TableCells& cells, const TableColumns& columns) {
  const CsvFile& file = cells.file();
  const auto is_value = [&](const std::string& name) {
    const std::size_t column = file.column(name);
    for (std::size_t row = 0; row < std::min(cells.rows(), kMostSeen); ++row) {
      if (formats::trimmed(cells.text(row, column)) == formats::trimmed(name)) return true;
    }
    return false;
  };
  const std::string advice =
      "the first line must name the columns; if it does, rename what is called as a value is";
  for (const std::string& name : columns.targets) {
    if (!is_value(name)) continue;
    formats::fail_file(cells.path(), str("the target '", cut(name), "' is also a value of its ",
                                         "column; ", advice));
  }
  Names odd = columns.inputs;
  std::ranges::copy(columns.targets, std::back_inserter(odd));
  std::erase_if(odd, [&](const std::string& name) {
    return !formats::csv_number(name).has_value() && !is_value(name);
  });
  if (odd.empty()) return;
  log_warning(str("csv: '", cells.path(), "' has columns whose names are numbers or values of ",
                  "theirs: ", listed(mapped(odd, in_single_quotes), 5), "; ", advice));
}

std::vector<ColumnForm> forms_of(const TableCells& cells, const NumberForm& form,
                                 const std::vector<std::string>& inputs,
                                 const CsvSetOptions& options) {
  const CsvFile& file = cells.file();
  const auto is_listed = [&](const std::string& input, const Names& names) {
    return std::ranges::any_of(
        names, [&](const auto& name) { return file.column(name) == file.column(input); });
  };
  std::vector<ColumnForm> forms(inputs.size());
  bool has_texts = false;
  for (std::size_t i = 0; i < inputs.size(); ++i) {
    if (is_listed(inputs[i], options.dates)) {
      forms[i].date_parts = options.date_parts;
    } else if (is_listed(inputs[i], options.categories)) {
      forms[i] = categories_of(cells, inputs[i], options);
    } else if (const auto text = text_column(cells, form, inputs[i], kMostSeen);
               text && text->is_text()) {
      // Dates are no categories, nor are numbers that are written in another way.
      if (!options.finds_categories || text->has_dates || !text->hint.empty()) {
        has_texts = true;
      } else {
        forms[i] = categories_of(cells, inputs[i], options);
      }
    }
  }
  if (has_texts) refuse_texts(cells, form, inputs, forms, options);
  const bool are_numbers =
      std::ranges::all_of(forms, [](const ColumnForm& each) { return each == ColumnForm(); });
  return are_numbers ? std::vector<ColumnForm>() : forms;
}

void check_target_numbers(const TableCells& cells, const NumberForm& form,
                          const std::string& target) {
  const auto first = text_column(cells, form, target, kMostSeen);
  if (!first || !first->is_text()) return;
  const auto text = text_column(cells, form, target);
  formats::fail_file(
      cells.path(),
      str("the target is not numbers: ", shown(cells, *text),
          text->hint.empty() ? "; data.task: classification predicts which text it is" : ""));
}

at::Tensor inputs_of(TableCells& cells, const NumberForm& form, bool fits, Fitted& fitted,
                     const CsvSetOptions& options, RoundedColumns& rounded) {
  std::int64_t width = 0;
  std::size_t count = 0;
  std::vector<NumberPlace> numbers;
  std::vector<std::pair<std::size_t, NumberPlace>> others;  // the columns that are no numbers
  for (std::size_t i = 0; i < fitted.inputs.size(); ++i) {
    const ColumnForm of_column = fitted.form(i);
    const NumberPlace place{fitted.inputs[i], count, width};
    if (of_column == ColumnForm()) {
      numbers.push_back(place);
    } else {
      others.emplace_back(i, place);
    }
    count += static_cast<std::size_t>(of_column.numbers());
    width += of_column.inputs();
  }
  at::Tensor into = room_for(cells, fitted.inputs.size(), width, columns_together(cells.rows()));
  const auto on_text = [&](const std::string& column) {
    if (fits && !cells.keeps_damaged()) {
      refuse_texts(cells, form, fitted.inputs, fitted.forms, options);
    }
    return told_of_text(cells, form, column, options);
  };
  NumberColumns columns(cells, form,
                        {.fits = fits,
                         .normalizes = options.normalize,
                         .fills = cells.fills_missing(),
                         .scales = fitted.input_scales,
                         .means = fitted.input_means},
                        count, into, rounded, on_text);
  columns.read(numbers);
  ColumnCounts unseen;
  for (const auto& [i, place] : others) {
    const ColumnForm& of_column = fitted.forms[i];
    if (of_column.categories.empty()) {
      write_dates(cells, of_column, options.date_format, place, columns);
    } else {
      const auto found = write_categories(cells, place.column, of_column, place.input, into);
      if (found > 0) unseen.emplace_back(place.column, found);
    }
  }
  if (!unseen.empty()) {
    log_info(str("csv: '", cells.path(), "': values of categories that the training set does not ",
                 "have take the input of data.unseen: ", counts_text(unseen)));
  }
  return into;
}

at::Tensor values_of(TableCells& cells, const NumberForm& form, bool fits, Fitted& fitted,
                     const CsvSetOptions& options, RoundedColumns& rounded) {
  std::vector<NumberPlace> places;
  for (const std::string& name : fitted.targets) {
    places.push_back({name, places.size(), std::ssize(places)});
  }
  at::Tensor into =
      room_for(cells, places.size(), std::ssize(places), columns_together(cells.rows()));
  std::vector<double> no_means;
  NumberColumns columns(cells, form,
                        {.fits = fits,
                         .normalizes = options.normalize_targets,
                         .scales = fitted.target_scales,
                         .means = no_means},
                        places.size(), into, rounded, [&](const std::string& column) {
                          return told_of_text(cells, form, column, options);
                        });
  columns.read(places);
  return into;
}

}  // namespace lockstep::data
