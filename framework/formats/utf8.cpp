#include "framework/formats/utf8.h"

#include <algorithm>

#include "framework/base/text.h"

namespace lockstep::formats {
std::size_t first_not_utf8(std::string_view text) noexcept {
  const auto is_long = [](char byte) { return static_cast<unsigned char>(byte) >= 0x80; };
  for (auto at = std::ranges::find_if(text, is_long); at != text.end();
       at = std::find_if(at, text.end(), is_long)) {
    const auto place = static_cast<std::size_t>(at - text.begin());
    const std::size_t size = letter_size(text.substr(place));
    if (size == 0) return place;
    at += static_cast<std::ptrdiff_t>(size);
  }
  return std::string_view::npos;
}

bool is_utf16(std::string_view text) noexcept {
  return text.starts_with("\xff\xfe") || text.starts_with("\xfe\xff");
}

std::string utf8_advice(const std::string& path, std::string_view text) {
  // Letters in Windows' encoding, control characters in Latin-1, which has the others alike.
  const bool is_windows = std::ranges::any_of(text, [](char byte) {
    return static_cast<unsigned char>(byte) >= 0x80 && static_cast<unsigned char>(byte) < 0xa0;
  });
  const char* const name = is_utf16(text) ? "UTF-16" : is_windows ? "WINDOWS-1252" : "LATIN1";
  const bool is_packed = path.ends_with(".gz");
  return str("if that is ", name,
             ", this makes UTF-8 of it: ", is_packed ? str("zcat '", path, "' | ") : "",
             "iconv -f ", name, " -t UTF-8 ", is_packed ? "" : str("'", path, "' "), "> NEW");
}

}  // namespace lockstep::formats
