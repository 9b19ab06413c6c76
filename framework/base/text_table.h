#pragma once

#include <cstddef>
#include <string>
#include <string_view>
#include <vector>

namespace lockstep {

using TextTable = std::vector<std::vector<std::string>>;

/// How many columns a terminal shows a text in, as wcwidth(3) tells of its letters in UTF-8. What
/// is no letter takes one a byte.
[[nodiscard]] std::size_t text_columns(std::string_view text);

/// The rows as lines that begin with `indent`, with columns two blanks apart and none at a line's
/// end. `alignment` has a letter a column, 'l' for texts that begin at its left and 'r' for numbers
/// that end at its right; the last one is that of all further columns. Rows may have fewer cells
/// than others.
[[nodiscard]] std::string table_text(const TextTable& rows, std::string_view alignment,
                                     std::string_view indent = "");

}  // namespace lockstep
