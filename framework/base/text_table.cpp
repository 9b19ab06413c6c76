#include "framework/base/text_table.h"

#include <algorithm>
#include <cstddef>
#include <cwchar>

#include <locale.h>

namespace lockstep {

std::size_t text_columns(std::string_view text) {
  // This thread uses it whatever the program's locale is. On a system without C.UTF-8 each byte
  // beyond ASCII takes a column.
  static const locale_t utf8 = ::newlocale(LC_CTYPE_MASK, "C.UTF-8", nullptr);
  const locale_t before = ::uselocale(utf8);
  std::size_t columns = 0;
  while (!text.empty()) {
    std::mbstate_t begin{};
    wchar_t letter = 0;
    const std::size_t bytes = std::mbrtowc(&letter, text.data(), text.size(), &begin);
    const bool is_letter = bytes > 0 && bytes <= text.size();
    columns += is_letter ? static_cast<std::size_t>(std::max(::wcwidth(letter), 0)) : 1;
    text.remove_prefix(is_letter ? bytes : 1);
  }
  ::uselocale(before);
  return columns;
}

std::string table_text(const TextTable& rows, std::string_view alignment, std::string_view indent) {
  std::vector<std::size_t> widths;
  for (const auto& row : rows) {
    widths.resize(std::max(widths.size(), row.size()));
    for (std::size_t i = 0; i < row.size(); ++i) {
      widths[i] = std::max(widths[i], text_columns(row[i]));
    }
  }
  std::string text;
  for (const auto& row : rows) {
    std::string line;
    for (std::size_t i = 0; i < row.size(); ++i) {
      const std::string blanks(widths[i] - text_columns(row[i]), ' ');
      const bool is_number = alignment[std::min(i, alignment.size() - 1)] == 'r';
      line += std::string(i == 0 ? "" : "  ") + (is_number ? blanks + row[i] : row[i] + blanks);
    }
    line.resize(line.find_last_not_of(' ') + 1);
    text += std::string(line.empty() ? "" : indent) + line + "\n";
  }
  return text;
}

}  // namespace lockstep
