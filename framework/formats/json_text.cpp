#include "framework/formats/json_text.h"

#include <array>

namespace lockstep::formats {

bool has_too_many(std::string_view json, std::size_t most_names) noexcept {
  std::array<std::size_t, kMostJsonLevels + 1> names{};  // so far, of the object at each level
  std::size_t levels = 0;
  bool is_text = false;
  for (std::size_t i = 0; i < json.size(); ++i) {
    const char letter = json[i];
    if (letter == '"') is_text = !is_text;
    if (letter == '\\' && is_text) ++i;
    if (is_text) continue;
    if (letter == '[' || letter == '{') {
      if (++levels > kMostJsonLevels) return true;
      names[levels] = 0;
    }
    if (letter == ':' && ++names[levels] > most_names) return true;
    if ((letter == ']' || letter == '}') && levels > 0) --levels;
  }
  return false;
}

}  // namespace lockstep::formats
