#pragma once

#include <cstddef>
#include <string>
#include <string_view>
#include <vector>

namespace lockstep {

using TextTable = std::vector<std::vector<std::string>>;

/// Returns how many columns of a terminal a text takes, as wcwidth(3) tells of its letters in
/// UTF-8. Bytes that are no letter take a column each.
[[nodiscard]] std::size_t text_columns(std::string_view text);

/// Returns the rows as lines that begin with `indent`, with columns two blanks apart and none at a
/// line's end. `alignment` has a letter a column, 'l' for texts that begin at its left and 'r' for
/// numbers that end at its right; its last letter holds for all further columns. Rows may have
/// fewer cells than others.
[[nodiscard]] std::string table_text(const TextTable& rows, std::string_view alignment,
                                     std::string_view indent = "");

}  // namespace lockstep
