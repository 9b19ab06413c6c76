#include "framework/base/wording.h"

namespace lockstep {

std::string counted(std::int64_t count, std::string_view one, std::string_view many) {
  std::string text = std::to_string(count) + ' ';
  if (count == 1 || many.empty()) text += one;
  if (count != 1) text += many.empty() ? "s" : many;
  return text;
}

std::string cut(std::string_view text, std::size_t most) {
  if (text.size() <= most) return std::string(text);
  const auto continues = [&](std::size_t at) { return (text[at] & 0xc0) == 0x80; };
  while (most > 0 && continues(most)) --most;
  return std::string(text.substr(0, most)) + "…";
}

}  // namespace lockstep
