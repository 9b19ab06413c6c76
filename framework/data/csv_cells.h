#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <map>
#include <set>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "framework/data/csv.h"
#include "framework/data/index_list.h"
#include "framework/data/tensor_set.h"
#include "framework/formats/csv.h"

namespace lockstep::data {

/// The texts that stand for a missing value.
class MissingValues {
 public:
  explicit MissingValues(const std::vector<std::string>& spellings);

  [[nodiscard]] bool empty() const { return spellings_.empty(); }
  [[nodiscard]] bool contains(std::string_view text) const {
    text = formats::trimmed(text);
    return last_bytes_[last_byte(text)] && spellings_.contains(text);
  }

 private:
  // 0 for an empty text.
  static std::size_t last_byte(std::string_view text) {
    return text.empty() ? 0 : static_cast<unsigned char>(text.back());
  }

  std::set<std::string, std::less<>> spellings_;
  std::array<bool, 256> last_bytes_{};  // of all spellings; hardly a number ends with one of them
};

/// Columns, and how many cells of each something is said of.
using ColumnCounts = std::vector<std::pair<std::string, std::int64_t>>;

/// For messages: "age (3), city (1)".
[[nodiscard]] std::string counts_text(const ColumnCounts& counts);

/// A table's cells: which are missing, which rows are left out for that, and what is wrong with the
/// others. A wrong cell is an error, or, where damaged rows are kept, what batch() says of its row.
class TableCells {
 public:
  /// `file`, which lies at `path`, must live as long.
  TableCells(std::string path, const formats::CsvFile& file, const CsvSetOptions& options,
             const DataContext& context);

  [[nodiscard]] const std::string& path() const { return path_; }
  [[nodiscard]] const formats::CsvFile& file() const { return file_; }
  [[nodiscard]] std::size_t rows() const { return file_.rows(); }
  [[nodiscard]] std::string_view text(std::size_t row, std::size_t column) const {
    return file_.text(row, column);
  }

  /// Looks for missing values in these columns. With CsvMissing::error all are named in one error;
  /// else these rows are left out, or filled, and a line says how many. `targets` may be empty.
  void find_missing(const std::vector<std::string>& inputs,
                    const std::vector<std::string>& targets);
  /// What is fitted is not to see these samples of the set.
  void hold_out(const IndexList& samples);

  /// Whether a row has no part in the set.
  [[nodiscard]] bool leaves_out(std::size_t row) const {
    return !left_out_.empty() && left_out_[row];
  }
  /// Whether means, deviations and categories are computed from this row, too.
  [[nodiscard]] bool is_fitted(std::size_t row) const {
    return !leaves_out(row) && (held_out_.empty() || !held_out_[row]);
  }
  [[nodiscard]] bool are_all_fitted() const { return left_out_.empty() && held_out_.empty(); }
  [[nodiscard]] bool fills_missing() const { return missing_is_ == CsvMissing::mean; }
  /// Whether wrong cells are told of their rows, and no errors.
  [[nodiscard]] bool keeps_damaged() const { return keeps_; }
  /// Whether missing values are no errors by themselves.
  [[nodiscard]] bool allows_missing() const { return missing_is_ != CsvMissing::error; }
  [[nodiscard]] bool is_missing(std::size_t row, std::size_t column) const {
    return missing_.contains(text(row, column));
  }
  /// Whether a cell needs no more checks: its row is left out, its line is ragged, or
  /// find_missing() has told that it is missing.
  [[nodiscard]] bool says_nothing(std::size_t row, std::size_t column) const;

  /// Notes that a cell breaks `rule` ("is …"), unless it says_nothing().
  void add(std::size_t row, std::size_t column, const std::string& rule);
  /// The same, also for a missing value.
  void add_missing(std::size_t row, std::size_t column, const std::string& rule);
  /// Throws the DataError of a column with cells that add() has noted, if it is one.
  void refuse_wrong(std::size_t column) const;
  /// The same of all columns of several cells that are all wrong: each is one fault, and not one a
  /// row. Not of what is predicted.
  void refuse_wrong_columns() const;

  /// The rows of the set, where some are left out.
  [[nodiscard]] std::vector<std::int64_t> kept() const;
  /// The line of the file in which each of the set's rows begins; nothing where a row is a line and
  /// none is left out.
  [[nodiscard]] IndexList lines() const;
  /// The rows of kept() that a training would take: predictions also have rows with gaps.
  [[nodiscard]] std::vector<std::int64_t> complete() const;
  /// The damaged rows that were found, by their numbers in the set, each with its line of the file.
  [[nodiscard]] DamagedRows take();

 private:
  static constexpr std::size_t kMostRows = 10'000;  // that are told with line and column

  [[nodiscard]] bool is_ragged(std::size_t row) const;
  void refuse_missing(const std::vector<std::string>& columns);
  void warn_of_missing(std::int64_t count) const;
  void tell_missing(const ColumnCounts& found, std::int64_t filled) const;
  // What is wrong with a column, by its first such cell.
  [[nodiscard]] std::string told_of_wrong(std::size_t column) const;
  [[nodiscard]] std::size_t count_values(std::size_t column) const;  // that are checked
  void note(std::size_t row, const std::string& text);

  std::string path_;
  const formats::CsvFile& file_;
  MissingValues missing_;
  CsvMissing missing_is_;
  bool keeps_;          // damaged rows
  bool needs_targets_;  // otherwise rows without them stay
  bool has_means_;      // of the training set
  // A flag for each row, or no flags: the set leaves the row out; a training would; what is fitted
  // does not see it.
  std::vector<bool> left_out_, incomplete_, held_out_;
  DamagedRows rows_;
  struct Wrong {
    std::size_t row = 0;  // the first
    std::string rule;
    std::size_t count = 0;
  };
  std::map<std::size_t, Wrong> wrong_;  // columns
};

}  // namespace lockstep::data
