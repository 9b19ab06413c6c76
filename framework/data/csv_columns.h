#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include <ATen/core/Tensor.h>

#include "framework/data/csv.h"
#include "framework/data/csv_cells.h"
#include "framework/data/csv_numbers.h"
#include "framework/data/fitted.h"

namespace lockstep::data {

/// The columns of a training file that the options make inputs and targets.
/// ValueError as load_csv() has it.
struct TableColumns {
  std::vector<std::string> inputs;
  std::vector<std::string> targets;
};
[[nodiscard]] TableColumns columns_of(const std::string& path, const formats::CsvFile& file,
                                      const CsvSetOptions& options);

/// Warns of the first two of a column's categories or labels (`what`) that look like one: numbers
/// of one value, or texts that differ by the case of letters alone.
void warn_of_alike(const TableCells& cells, const std::string& column, const char* what,
                   const std::vector<std::string>& names);

/// Warns of columns that are called as numbers or values are: the file may have no header, and its
/// first row is lost then. DataError if a target is called as one of its values.
void check_header(const TableCells& cells, const TableColumns& columns);

/// How these columns become inputs, as the fitted rows have it; none if all are numbers. Columns of
/// text that no option speaks of are a DataError, which names them all and what to write.
[[nodiscard]] std::vector<ColumnForm> forms_of(const TableCells& cells, const NumberForm& form,
                                               const std::vector<std::string>& inputs,
                                               const CsvSetOptions& options);
/// Throws the DataError of a target that is text.
void check_target_numbers(const TableCells& cells, const NumberForm& form,
                          const std::string& target);

/// float32 (rows, inputs) of all rows, by the scales and means of `fitted`; with `fits` these are
/// found first. 0 where a cell is wrong.
[[nodiscard]] at::Tensor inputs_of(TableCells& cells, const NumberForm& form, bool fits,
                                   Fitted& fitted, const CsvSetOptions& options,
                                   RoundedColumns& rounded);
/// The same for targets that are values; those that are missing are NaN.
[[nodiscard]] at::Tensor values_of(TableCells& cells, const NumberForm& form, bool fits,
                                   Fitted& fitted, const CsvSetOptions& options,
                                   RoundedColumns& rounded);

}  // namespace lockstep::data
