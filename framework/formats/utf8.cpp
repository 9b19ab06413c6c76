#include "framework/formats/utf8.h"

#include <algorithm>

#include "framework/base/text.h"

namespace lockstep::formats {
namespace {

// How many bytes the letter has that a text begins with; 0 if it is none.
std::size_t letter_size(std::string_view text) noexcept {
  const auto byte = [&](std::size_t i) -> unsigned {
    return i < text.size() ? static_cast<unsigned char>(text[i]) : 0U;
  };
  const unsigned first = byte(0);
  const unsigned second = byte(1);
  if (first < 0x80) return 1;
  if (first < 0xc2 || first > 0xf4) return 0;
  // Longer than they need to be, surrogates, and beyond the last letter.
  if ((first == 0xe0 && second < 0xa0) || (first == 0xed && second > 0x9f) ||
      (first == 0xf0 && second < 0x90) || (first == 0xf4 && second > 0x8f)) {
    return 0;
  }
  const std::size_t size = first < 0xe0 ? 2 : first < 0xf0 ? 3 : 4;
  for (std::size_t i = 1; i < size; ++i) {
    if ((byte(i) & 0xc0U) != 0x80) return 0;
  }
  return size;
}

}  // namespace

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
