#pragma once

#include <concepts>
#include <string>

namespace lockstep::keys {

/// A value as YAML that reads back as the same value. A finite number has the fewest digits. A
/// string has no quotes if every YAML reader, of any version, reads it as that string.
[[nodiscard]] std::string yaml_text(bool value);
[[nodiscard]] std::string yaml_text(double value);
[[nodiscard]] std::string yaml_text(const std::string& value);
template <std::integral Integer>
[[nodiscard]] std::string yaml_text(Integer value) {
  return std::to_string(value);
}

/// `text` in single quotes for a message of one line: control characters escaped, cut if long.
[[nodiscard]] std::string yaml_shown(const std::string& text);

/// The two hexadecimal digits of a control character of ASCII; "" for all others.
[[nodiscard]] std::string control_code(char letter);

}  // namespace lockstep::keys
