#include "framework/base/text_table.h"

#include <algorithm>
#include <cstddef>

namespace lockstep {

std::string table_text(const TextTable& rows, std::string_view alignment, std::string_view indent) {
  std::vector<std::size_t> widths;
  for (const auto& row : rows) {
    widths.resize(std::max(widths.size(), row.size()));
    for (std::size_t i = 0; i < row.size(); ++i) widths[i] = std::max(widths[i], row[i].size());
  }
  std::string text;
  for (const auto& row : rows) {
    std::string line;
    for (std::size_t i = 0; i < row.size(); ++i) {
      const std::string blanks(widths[i] - row[i].size(), ' ');
      const bool is_number = alignment[std::min(i, alignment.size() - 1)] == 'r';
      line += std::string(i == 0 ? "" : "  ") + (is_number ? blanks + row[i] : row[i] + blanks);
    }
    line.resize(line.find_last_not_of(' ') + 1);
    text += std::string(line.empty() ? "" : indent) + line + "\n";
  }
  return text;
}

}  // namespace lockstep
