#include "framework/data/csv_cells.h"

#include <algorithm>
#include <iterator>
#include <optional>
#include <utility>

#include "framework/base/logging.h"
#include "framework/base/range.h"
#include "framework/base/text.h"
#include "framework/formats/data_file.h"

namespace lockstep::data {
namespace {

constexpr const char* kMissingAdvice =
    "; data.missing: drop leaves these rows out, and mean fills them; data.missing_values says "
    "what counts as missing ([]: nothing)";

}  // namespace

MissingValues::MissingValues(const std::vector<std::string>& spellings) {
  for (const std::string& spelling : spellings) {
    const std::string_view text = formats::trimmed(spelling);
    spellings_.emplace(text);
    last_bytes_[last_byte(text)] = true;
  }
}

std::string counts_text(const ColumnCounts& counts) {
  const auto texts =
      mapped(counts, [](const auto& entry) { return str(entry.first, " (", entry.second, ")"); });
  return shortened(listed(texts, 10), 400);
}

TableCells::TableCells(std::string path, const formats::CsvFile& file, const CsvSetOptions& options,
                       const DataContext& context)
    : path_(std::move(path)),
      file_(file),
      missing_(options.missing_values),
      missing_is_(options.missing),
      keeps_(context.keeps_damaged),
      needs_targets_(context.needs_targets),
      has_means_(context.fitted &&
                 !(context.fitted->input_scales.empty() && context.fitted->input_means.empty())) {
  for (const formats::CsvFile::Ragged& line : file.ragged()) note(line.row, file.told(line));
}

void TableCells::refuse_missing(const std::vector<std::string>& columns) {
  constexpr std::int64_t kMostTold = 10;
  std::int64_t count = 0;
  std::string places;
  const auto numbers = mapped(columns, [&](const auto& name) { return file_.column(name); });
  for (std::size_t row = 0; row < file_.rows(); ++row) {
    for (std::size_t i = 0; i < columns.size(); ++i) {
      if (!is_missing(row, numbers[i])) continue;
      if (keeps_ && is_ragged(row)) continue;
      ++count;
      if (keeps_) {
        note(row, file_.told(row, numbers[i], "is a missing value"));
      } else if (count <= kMostTold) {
        places += str(count == 1 ? "" : "; ", "line ", file_.line_of(row), ", column '",
                      cut(columns[i]), "': '", cut(text(row, numbers[i])), "'");
      }
    }
  }
  if (count == 0) return;
  if (keeps_) return warn_of_missing(count);
  if (count > kMostTold) places += str("; and ", count - kMostTold, " more");
  formats::fail_file(path_,
                     str("it has ", counted(count, "missing value"), ": ", places, kMissingAdvice));
}

// Where each row is told of its own.
void TableCells::warn_of_missing(std::int64_t count) const {
  std::string advice = kMissingAdvice;
  if (!needs_targets_) {
    advice = str(", and rows with such get no prediction; ", has_means_ ? "" : "a training with ",
                 "data.missing: mean fills inputs by the training set's means");
  }
  log_warning(str("csv: '", path_, "' has ", counted(count, "missing value"), advice));
}

void TableCells::find_missing(const std::vector<std::string>& inputs,
                              const std::vector<std::string>& targets) {
  if (missing_.empty()) return;
  std::vector<std::string> columns = inputs;
  std::ranges::copy(targets, std::back_inserter(columns));
  if (!allows_missing()) return refuse_missing(columns);
  ColumnCounts found;  // the columns with missing values
  std::vector<bool> left_out(rows()), incomplete(rows());
  std::int64_t filled = 0, unpredicted = 0;
  for (std::size_t i = 0; i < columns.size(); ++i) {
    const std::size_t column = file_.column(columns[i]);
    const bool is_target = i >= inputs.size();
    std::int64_t count = 0;
    for (std::size_t row = 0; row < rows(); ++row) {
      if (!is_missing(row, column) || is_ragged(row)) continue;
      ++count;
      if (fills_missing() && !is_target) continue;
      incomplete[row] = true;
      // What is predicted needs no target, and a row without an input is named in its place.
      if (!needs_targets_ && is_target) continue;
      if (!needs_targets_ && keeps_) {
        ++unpredicted;
        note(row, file_.told(row, column, "is a missing value"));
      } else {
        left_out[row] = true;
      }
    }
    if (count > 0) found.emplace_back(columns[i], count);
    if (fills_missing() && !is_target) filled += count;
  }
  if (std::ranges::count(incomplete, true) > 0) incomplete_ = std::move(incomplete);
  if (std::ranges::count(left_out, true) > 0) left_out_ = std::move(left_out);
  std::ranges::stable_sort(found, std::ranges::greater(), &ColumnCounts::value_type::second);
  tell_missing(found, filled);
  if (unpredicted > 0) warn_of_missing(unpredicted);
}

void TableCells::tell_missing(const ColumnCounts& found, std::int64_t filled) const {
  const auto dropped = std::ranges::count(left_out_, true);
  if (dropped + filled == 0) return;
  const std::string places = counts_text(found);
  if (dropped == std::ssize(left_out_) && dropped > 0) {
    formats::fail_file(path_, str("no row is left without those that miss a value: ", places,
                                  "; data.ignore takes columns out, and data.missing: mean fills "
                                  "inputs"));
  }
  std::vector<std::string> texts;
  if (filled > 0) {
    texts.push_back(str(counted(filled, "missing value"), filled == 1 ? " is" : " are",
                        " filled by the training set's means, or a category of their own"));
  }
  if (dropped > 0) {
    texts.push_back(str(dropped, " of ", counted(std::ssize(left_out_), "row"),
                        dropped == 1 ? " is" : " are", " left out, as ",
                        filled > 0 ? "targets" : "values", " are missing"));
  }
  log_info(str("csv: '", path_, "': ", join(texts), "; missing: ", places));
}

void TableCells::hold_out(const IndexList& samples) {
  const std::vector<std::int64_t> places = kept();
  held_out_.assign(rows(), false);
  for (std::int64_t i = 0; i < samples.size(); ++i) {
    const std::int64_t sample = samples[i];
    const std::int64_t row = places.empty() ? sample : places[static_cast<std::size_t>(sample)];
    held_out_[static_cast<std::size_t>(row)] = true;
  }
}

bool TableCells::says_nothing(std::size_t row, std::size_t column) const {
  return leaves_out(row) || (keeps_ && is_ragged(row)) ||
         ((keeps_ || allows_missing()) && is_missing(row, column));
}

void TableCells::add(std::size_t row, std::size_t column, const std::string& rule) {
  if (says_nothing(row, column)) return;
  ++wrong_.try_emplace(column, Wrong{.row = row, .rule = rule}).first->second.count;
  add_missing(row, column, rule);
}

void TableCells::add_missing(std::size_t row, std::size_t column, const std::string& rule) {
  if (leaves_out(row) || (keeps_ && is_ragged(row))) return;
  if (!keeps_) file_.refuse(row, column, rule);
  note(row, file_.told(row, column, rule));
}

std::size_t TableCells::count_values(std::size_t column) const {
  std::size_t count = 0;
  for (std::size_t row = 0; row < rows(); ++row) count += says_nothing(row, column) ? 0 : 1;
  return count;
}

std::string TableCells::told_of_wrong(std::size_t column) const {
  const auto& [row, rule, count] = wrong_.at(column);
  const std::size_t values = count_values(column);
  return str("line ", file_.line_of(row), ": ", file_.told(row, column, rule),
             count == 1 ? ""
                        : str("; so it is with ",
                              count == values ? str("all ", count) : str(count, " of ", values),
                              " values of the column"));
}

void TableCells::refuse_wrong(std::size_t column) const {
  if (wrong_.contains(column)) formats::fail_file(path_, told_of_wrong(column));
}

void TableCells::refuse_wrong_columns() const {
  if (!needs_targets_) return;
  std::vector<std::string> texts;
  for (const auto& [column, wrong] : wrong_) {
    if (wrong.count > 1 && wrong.count == count_values(column)) {
      texts.push_back(told_of_wrong(column));
    }
  }
  if (!texts.empty()) formats::fail_file(path_, join(texts, "; "));
}

std::vector<std::int64_t> TableCells::kept() const {
  if (left_out_.empty()) return {};
  return filtered(consecutive<std::int64_t>(0, rows()),
                  [&](std::int64_t row) { return !left_out_[static_cast<std::size_t>(row)]; });
}

IndexList TableCells::lines() const {
  if (left_out_.empty() && file_.lines(0, rows()) == rows()) return {};
  std::vector<std::int64_t> lines;
  std::size_t line = file_.line_of(0);
  for (std::size_t row = 0; row < rows(); ++row) {
    if (!leaves_out(row)) lines.push_back(static_cast<std::int64_t>(line));
    line += file_.lines(row, row + 1);
  }
  return IndexList(lines);
}

std::vector<std::int64_t> TableCells::complete() const {
  if (needs_targets_ || incomplete_.empty()) return {};
  std::vector<std::int64_t> samples;
  std::int64_t sample = 0;
  for (std::size_t row = 0; row < rows(); ++row) {
    if (leaves_out(row)) continue;
    if (!incomplete_[row]) samples.push_back(sample);
    ++sample;
  }
  return samples;
}

DamagedRows TableCells::take() {
  std::size_t last = 0;
  std::size_t line = file_.line_of(0);
  for (auto& [index, reason] : rows_.reasons) {
    const auto row = static_cast<std::size_t>(index);
    line += file_.lines(std::exchange(last, row), row);
    reason = str("data file '", path_, "': line ", line, ": ", reason);
  }
  std::ranges::sort(rows_.others);
  rows_.reason_of_others = str("data file '", path_, "': cells of this row are wrong, too, as of ",
                               kMostRows, " others, which are named");
  if (left_out_.empty()) return std::move(rows_);
  DamagedRows made{.reason_of_others = rows_.reason_of_others};
  const std::vector<std::int64_t> rows = kept();
  const auto sample_of = [&](std::int64_t row) {
    return std::ranges::lower_bound(rows, row) - rows.begin();
  };
  for (auto& [row, reason] : rows_.reasons) made.reasons.emplace(sample_of(row), std::move(reason));
  made.others = mapped(rows_.others, sample_of);
  return made;
}

bool TableCells::is_ragged(std::size_t row) const {
  return std::ranges::binary_search(file_.ragged(), row, std::less<>(),
                                    &formats::CsvFile::Ragged::row);
}

void TableCells::note(std::size_t row, const std::string& text) {
  constexpr std::size_t kLongest = 1000;
  const auto index = static_cast<std::int64_t>(row);
  if (const auto known = rows_.reasons.find(index); known != rows_.reasons.end()) {
    std::string& reason = known->second;
    if (reason.size() < kLongest) {
      reason += str("; ", text);
      if (reason.size() >= kLongest) reason += "; ...";
    }
  } else if (rows_.reasons.size() < kMostRows) {
    rows_.reasons.emplace(index, text);
  } else if (rows_.others.empty() || rows_.others.back() != index) {
    rows_.others.push_back(index);
  }
}

}  // namespace lockstep::data
