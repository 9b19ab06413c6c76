#include "framework/data/rounding.h"

#include <array>
#include <charconv>

namespace lockstep::data {

std::string fixed_text(double number) {
  std::array<char, 400> text{};
  const auto end =
      std::to_chars(text.data(), text.data() + text.size(), number, std::chars_format::fixed).ptr;
  return {text.data(), end};
}

}  // namespace lockstep::data
