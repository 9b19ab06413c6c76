#pragma once

#include <cstddef>
#include <limits>
#include <optional>
#include <string>
#include <vector>

#include "framework/data/csv.h"
#include "framework/data/csv_cells.h"
#include "framework/data/csv_numbers.h"
#include "framework/data/fitted.h"

namespace lockstep::data {

/// A column with cells that are no numbers.
struct TextColumn {
  std::string name;
  std::size_t row = 0;               ///< of the first such cell
  std::size_t count = 0;             ///< of these
  std::size_t seen = 0;              ///< of all that were looked at; missing ones are none of them
  std::string date_format{};         ///< by which these are dates that are not ISO 8601's
  bool has_dates = false;            ///< all of these are ISO 8601's
  std::string hint{};                ///< how these are numbers after all
  std::vector<std::string> words{};  ///< what stands in them, if it may mean missing

  /// Whether it is more than a column of numbers with a mistake.
  [[nodiscard]] bool is_text() const { return 2 * count >= seen; }
};

/// None if the first `most` cells are numbers or blank.
[[nodiscard]] std::optional<TextColumn> text_column(
    const TableCells& cells, const NumberForm& form, const std::string& name,
    std::size_t most = std::numeric_limits<std::size_t>::max());

/// For messages: "'age' (line 4: 'unknown'; 2 of 100 values)".
[[nodiscard]] std::string shown(const TableCells& cells, const TextColumn& text);

/// The data.date_format by which all of a column's values are dates; "" if none is known.
[[nodiscard]] std::string date_format_of(const TableCells& cells, std::size_t column);

/// The end of the message about a cell of a column of numbers that is no number: how many of the
/// column's cells are none, and what to write. Where damaged rows are kept, it is logged as a
/// warning instead, and the result is empty.
[[nodiscard]] std::string told_of_text(const TableCells& cells, const NumberForm& form,
                                       const std::string& column, const CsvSetOptions& options);

/// Throws the DataError that names all of these inputs that have a cell that is no number, though
/// `forms` have them as such, and says what to write. Returns where there are none.
void refuse_texts(const TableCells& cells, const NumberForm& form,
                  const std::vector<std::string>& inputs, const std::vector<ColumnForm>& forms,
                  const CsvSetOptions& options);

}  // namespace lockstep::data
