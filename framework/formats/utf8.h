#pragma once

#include <cstddef>
#include <string>
#include <string_view>

namespace lockstep::formats {

/// Where the first byte is that is no part of a letter in UTF-8; npos if there is none.
[[nodiscard]] std::size_t first_not_utf8(std::string_view text) noexcept;

/// Whether a text begins with the byte order mark of UTF-16.
[[nodiscard]] bool is_utf16(std::string_view text) noexcept;

/// For a message about a text that is not in UTF-8: what it may be in, and the command that makes
/// UTF-8 of the file at `path`, which has it.
[[nodiscard]] std::string utf8_advice(const std::string& path, std::string_view text);

}  // namespace lockstep::formats
