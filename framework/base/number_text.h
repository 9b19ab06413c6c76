#pragma once

#include <array>
#include <charconv>
#include <concepts>
#include <optional>
#include <string>
#include <string_view>
#include <system_error>

namespace lockstep {

/// The shortest text that reads back as `number`, in the shorter of both formats or in the one that
/// is given, whatever the locale.
template <std::floating_point Number, std::same_as<std::chars_format>... Format>
[[nodiscard]] std::string shortest_text(Number number, Format... format) {
  std::array<char, 400> text{};  // as long as 1e308 is without an exponent
  return {text.data(),
          std::to_chars(text.data(), text.data() + text.size(), number, format...).ptr};
}

/// The number that all of `text` is, as std::from_chars() reads it; none for other texts, and for
/// numbers that a Number can't hold.
template <typename Number>
[[nodiscard]] std::optional<Number> parse_number(std::string_view text) {
  Number number{};
  const char* const end = text.data() + text.size();
  const auto [rest, error] = std::from_chars(text.data(), end, number);
  return error == std::errc() && rest == end ? std::optional(number) : std::nullopt;
}

}  // namespace lockstep
