#include "framework/keys/yaml_text.h"

#include <cmath>
#include <set>

#include "framework/base/number_text.h"
#include "framework/base/text.h"

namespace lockstep::keys {
namespace {

// `text` with a backslash before each of the `special` letters, and control characters in hex.
std::string escaped(const std::string& text, const std::string& special) {
  std::string result;
  for (const char letter : text) {
    if (special.find(letter) != std::string::npos) result += '\\';
    const std::string code = control_code(letter);
    result += code.empty() ? std::string(1, letter) : "\\x" + code;
  }
  return result;
}

}  // namespace

std::string yaml_text(bool value) {
  return value ? "true" : "false";
}

std::string yaml_text(double value) {
  const double size = std::fabs(value);
  const bool fixed = value == 0 || (size >= 1e-5 && size < 1e15);
  const auto format = fixed ? std::chars_format::fixed : std::chars_format::scientific;
  std::string text = shortest_text(value, format);
  // YAML 1.1 takes 1e-08 for a string: it wants a point.
  if (!fixed && text.find('.') == std::string::npos) text.insert(text.find('e'), ".0");
  return text;
}

std::string yaml_text(const std::string& value) {
  static const std::set<std::string> kWords{"null", "true", "false", "yes", "no",
                                            "on",   "off",  "y",     "n"};
  constexpr const char* kSafe =
      "/.-_0123456789abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ";
  const std::string word = lower(value);
  const bool is_path = value.find('/') != std::string::npos && value[0] != '-';
  const bool is_word = !word.empty() && (word[0] == '_' || (word[0] >= 'a' && word[0] <= 'z'));
  const bool plain = (is_path || is_word) && kWords.count(word) == 0 &&
                     value.find_first_not_of(kSafe) == std::string::npos;
  return plain ? value : str('"', escaped(value, "\"\\"), '"');
}

std::string yaml_shown(const std::string& text) {
  return str("'", escaped(cut(text), ""), "'");
}

std::string control_code(char letter) {
  const auto code = static_cast<unsigned char>(letter);
  if (code >= 0x20 && code != 0x7f) return "";
  return hexadecimal(code, 2);
}

}  // namespace lockstep::keys
