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
/// and in the order of their numbers, if all are numbers, and of their bytes. Cells that say
/// nothing have none, nor has the label `ignored`, if that is below 0: others may be a class's
/// number.
[[nodiscard]] std::vector<std::string> names_of(const TableCells& cells, std::size_t column,
                                                const std::function<bool(std::size_t row)>& counts,
                                                const std::optional<std::int64_t>& ignored = {});

/// Finds names by texts: the one with a text's bytes, then without blanks at their ends. If all
/// names are numbers, a text that is none of them is the only one of its value: another file may
/// have "1.0" for "1".
class NameTable {
 public:
  /// `names` must live as long.
  explicit NameTable(const std::vector<std::string>& names);

  [[nodiscard]] bool is_numeric() const { return is_numeric_; }
  /// Its number; -1 for none.
  [[nodiscard]] std::int64_t find(std::string_view text);
  /// Says in one line which texts of this column were found by their values; nothing without any.
  void tell_merged(const TableCells& cells, const std::string& column) const;

 private:
  const std::vector<std::string>& names_;
  bool is_numeric_;
  std::map<formats::Decimal, std::int64_t> by_number_;  // -1: several have it
  std::map<std::string_view, std::int64_t> by_text_, by_trimmed_;
  std::map<std::string, std::int64_t> merged_;
};

/// The class of each row, of those with these names: int64, -1 where its label is wrong or missing.
[[nodiscard]] at::Tensor labels_of(TableCells& cells, const std::string& column,
                                   const std::vector<std::string>& names,
                                   const std::optional<std::int64_t>& ignored);

}  // namespace lockstep::data
