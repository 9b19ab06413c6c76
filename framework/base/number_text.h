#pragma once

#include <array>
#include <charconv>
#include <cmath>
#include <concepts>
#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <system_error>

namespace lockstep {

/// Returns the shortest text that reads back as `number`, in the shorter of both formats or in the
/// given one, whatever the locale. NaN of either sign is "nan": a calculation's sign is chance.
template <std::floating_point Number, std::same_as<std::chars_format>... Format>
[[nodiscard]] std::string shortest_text(Number number, Format... format) {
  if (std::isnan(number)) return "nan";
  std::array<char, 400> text{};  // as long as 1e308 is without an exponent
  return {text.data(),
          std::to_chars(text.data(), text.data() + text.size(), number, format...).ptr};
}

/// The same, with ".0" where it would read as an integer: "1.0".
[[nodiscard]] inline std::string float_text(double number) {
  std::string text = shortest_text(number);
  if (std::isfinite(number) && text.find_first_of(".e") == std::string::npos) text += ".0";
  return text;
}

/// Returns the number that all of `text` is, as std::from_chars() reads it; nothing for other
/// texts, and for numbers that a Number can't hold.
template <typename Number>
[[nodiscard]] std::optional<Number> parse_number(std::string_view text) {
  Number number{};
  const char* const end = text.data() + text.size();
  const auto [rest, error] = std::from_chars(text.data(), end, number);
  return error == std::errc() && rest == end ? std::optional(number) : std::nullopt;
}

/// Returns the number of bytes, above 0, that a text says: "8", "8B", "500MB", "64KiB", "3 MiB";
/// units go to GB and GiB. Returns nothing for other texts.
[[nodiscard]] std::optional<std::int64_t> parse_size(std::string_view text);

/// The inverse, in the largest of B, KiB, MiB and GiB that gives a whole number: "64 KiB".
[[nodiscard]] std::string size_text(std::int64_t bytes);

}  // namespace lockstep
