#pragma once

#include <algorithm>
#include <cstddef>
#include <random>
#include <string>
#include <string_view>
#include <vector>

namespace lockstep::testing {

using Random = std::mt19937_64;

[[nodiscard]] inline std::size_t below(Random& random, std::size_t end) {
  return static_cast<std::size_t>(random() % end);
}

/// `bytes` with one damage of several kinds: bits, lengths and numbers changed, parts repeated,
/// left out and taken from another of the `samples`.
[[nodiscard]] inline std::string damaged(std::string bytes, const std::vector<std::string>& samples,
                                         Random& random) {
  if (bytes.empty()) return "x";
  const std::size_t at = below(random, bytes.size());
  const std::size_t length = 1 + below(random, std::min<std::size_t>(bytes.size() - at, 40));
  switch (below(random, 8)) {
    case 0:
      for (std::size_t i = 0; i <= below(random, 4); ++i) {
        char& byte = bytes[below(random, bytes.size())];
        byte = static_cast<char>(byte ^ 1 << below(random, 8));
      }
      return bytes;
    case 1:
      return bytes.substr(0, at);
    case 2:
      return bytes.insert(at, bytes.substr(at, length));
    case 3:
      return bytes.erase(at, length);
    case 4: {
      // A number's extreme, in one to eight bytes of either order.
      constexpr std::string_view kFirst("\x00\x7f\x80\xff\x01", 5);
      const std::size_t width = std::min(std::size_t{1} << below(random, 4), bytes.size() - at);
      std::string number(width, below(random, 2) == 0 ? '\0' : '\xff');
      number[below(random, 2) == 0 ? 0 : width - 1] = kFirst[below(random, kFirst.size())];
      return bytes.replace(at, width, number);
    }
    case 5: {
      const std::string& other = samples[below(random, samples.size())];
      return bytes.substr(0, at) + other.substr(below(random, other.size()));
    }
    case 6: {
      const std::vector<std::string> kTexts{
          "\"", ",", "\n", "\r\n", "\r", "'", "(", ")",   "1e999", "-",    "9223372036854775807",
          "0",  " ", ": ", "[",    "{",  "]", "}", "&a ", "*a",    "null", "\n  - "};
      return bytes.insert(at, kTexts[below(random, kTexts.size())]);
    }
    default:
      for (std::size_t i = at; i < at + length; ++i) bytes[i] = static_cast<char>(random());
      return bytes;
  }
}

/// `text`, which is JSON, with one to three changes: bytes replaced, left out or repeated, or its
/// end cut off.
[[nodiscard]] inline std::string changed_json(std::string text, Random& random) {
  const std::string kinds = "{}[],:\"0123456789-.eE\\ truefalsnFUIB";
  for (std::size_t changes = 1 + below(random, 3); changes > 0 && !text.empty(); --changes) {
    const std::size_t at = below(random, text.size());
    switch (below(random, 6)) {
      case 0:
        text[at] = static_cast<char>(random());
        break;
      case 1:
      case 2:
        text[at] = kinds[below(random, kinds.size())];
        break;
      case 3:
        text.erase(at, 1 + below(random, 9));
        break;
      case 4:
        text.insert(at, text.substr(below(random, text.size()), below(random, 40)));
        break;
      default:
        if (below(random, 8) == 0) text.resize(at + 1);
    }
  }
  return text;
}

}  // namespace lockstep::testing
