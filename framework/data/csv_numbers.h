#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include <ATen/core/Tensor.h>

#include "framework/data/csv_cells.h"
#include "framework/data/fitted.h"

namespace lockstep::data {

/// How a table writes its numbers.
class NumberForm {
 public:
  explicit NumberForm(const CsvSetOptions& options);

  /// `text` in the form that formats::csv_number() reads; it reads no number where `text` is none.
  /// Groups have three digits, or two as in 12,34,567, and the last one has three. True and False
  /// are 1 and 0, also in capital or small letters.
  [[nodiscard]] std::string plain(std::string_view text) const;
  /// NaN for what is no finite number.
  [[nodiscard]] double number(std::string_view text) const;
  /// All of these columns, one behind another. Values that are missing, where that is no error, are
  /// NaN, too.
  [[nodiscard]] std::vector<double> read(const TableCells& cells,
                                         std::span<const std::size_t> columns) const;

 private:
  std::string decimal_;
  std::string thousands_;  // none: ""
  bool is_usual_;
};

/// Which columns of a table have numbers that float32 rounds.
class RoundedColumns {
 public:
  RoundedColumns(const TableCells& cells, const NumberForm& form) : cells_(cells), form_(form) {}

  /// `number` is what a cell says, `taken` what float32 makes of it.
  void note(std::size_t row, std::size_t column, double number, double taken);
  void warn() const;

 private:
  const TableCells& cells_;
  const NumberForm& form_;
  std::vector<std::string> noted_;
  std::string first_;
};

/// How a table's numbers become those of a tensor. With `fits` scales and means are found first.
struct NumberScales {
  bool fits = false;
  bool normalizes = false;
  bool fills = false;                ///< missing ones; otherwise they stay NaN
  std::vector<ColumnScale>& scales;  ///< of each number; none: as they are
  std::vector<double>& means;        ///< where there are no scales
};

/// One of the numbers that a table's columns become.
struct NumberPlace {
  std::string column;
  std::size_t number = 0;  ///< whose scale is at this place
  std::int64_t input = 0;  ///< where it is in a tensor's rows
};

/// Writes numbers of a table into a tensor's columns: float32 (rows, any).
class NumberColumns {
 public:
  /// Called once for each column with a cell that is no number: what else is said of such cells.
  using OnText = std::function<std::string(const std::string& column)>;

  /// All must live as long. `count` numbers in all are to be written.
  NumberColumns(TableCells& cells, const NumberForm& form, NumberScales scales, std::size_t count,
                at::Tensor into, RoundedColumns& rounded, OnText on_text);

  /// The numbers of these columns. 0 where a cell is wrong.
  void read(const std::vector<NumberPlace>& places);
  /// Writes these numbers, one for each row. NaN where a cell is missing or wrong; wrong ones are
  /// noted by TableCells.
  void write(std::span<const double> numbers, std::size_t column, const NumberPlace& place);

 private:
  void fit(std::span<const double> numbers, const NumberPlace& place);

  TableCells& cells_;
  const NumberForm& form_;
  NumberScales scales_;
  at::Tensor into_;
  RoundedColumns& rounded_;
  OnText on_text_;
};

/// How many columns of a table of so many rows are read together.
[[nodiscard]] std::size_t columns_together(std::size_t rows);

}  // namespace lockstep::data
