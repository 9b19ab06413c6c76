#include "framework/data/rounding.h"

#include <array>
#include <charconv>

namespace lockstep::data {

namespace {

std::string shortest_text(double number, std::chars_format format) {
  std::array<char, 400> text{};
  return {text.data(), std::to_chars(text.data(), text.data() + text.size(), number, format).ptr};
}

}  // namespace

std::string fixed_text(double number) {
  return shortest_text(number, std::chars_format::fixed);
}

std::string scientific_text(double number) {
  return shortest_text(number, std::chars_format::scientific);
}

}  // namespace lockstep::data
