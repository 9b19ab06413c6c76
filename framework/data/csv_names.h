#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <map>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include <ATen/core/Tensor.h>

#include "framework/data/csv_cells.h"
#include "framework/formats/decimal.h"

namespace lockstep::data {

/// The different texts of a column's cells in the rows that `counts`, without blanks at their ends
/// and in the order of their bytes; or of their numbers, if all are numbers. Cells that say nothing
/// have none, nor has the label `ignored`, if that is below 0: others may be a class's number.
[[nodiscard]] std::vector<std::string> names_of(const TableCells& cells, std::size_t column,
                                                const std::function<bool(std::size_t row)>& counts,
                                                const std::optional<std::int64_t>& ignored = {});

/// Which of some names a text is. Numbers are told apart by their values, if all names are numbers,
/// and other texts by their bytes, then without blanks at their ends.
class NameTable {
 public:
  /// `names` must live as long.
  explicit NameTable(const std::vector<std::string>& names);

  [[nodiscard]] bool is_numeric() const { return is_numeric_; }
  /// Its number; -1 for none.
  [[nodiscard]] std::int64_t find(std::string_view text) const;

 private:
  bool is_numeric_;
  std::map<formats::Decimal, std::int64_t> by_number_;
  std::map<std::string_view, std::int64_t> by_text_, by_trimmed_;
};

/// The class of each row, of those with these names: int64, -1 where its label is wrong or missing.
[[nodiscard]] at::Tensor labels_of(TableCells& cells, const std::string& column,
                                   const std::vector<std::string>& names,
                                   const std::optional<std::int64_t>& ignored);

}  // namespace lockstep::data
