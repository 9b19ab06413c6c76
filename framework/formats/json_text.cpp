#include "framework/formats/json_text.h"

namespace lockstep::formats {

bool has_too_many_levels(std::string_view json) noexcept {
  std::size_t levels = 0;
  bool is_text = false;
  for (std::size_t i = 0; i < json.size(); ++i) {
    const char letter = json[i];
    if (letter == '"') is_text = !is_text;
    if (letter == '\\' && is_text) ++i;
    if (is_text) continue;
    if ((letter == '[' || letter == '{') && ++levels > kMostJsonLevels) return true;
    if ((letter == ']' || letter == '}') && levels > 0) --levels;
  }
  return false;
}

}  // namespace lockstep::formats
