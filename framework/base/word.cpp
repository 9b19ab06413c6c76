#include "framework/base/word.h"

#include <algorithm>
#include <array>
#include <bit>

#include "framework/base/text.h"

namespace lockstep {
namespace {

using Chars = std::array<char, sizeof(Word)>;

}  // namespace

void write_text(std::span<Word> words, std::string_view text) noexcept {
  constexpr std::string_view kCut = "...";
  const std::size_t capacity = words.size_bytes() - 1;
  text = text.substr(0, text.find('\0'));
  std::string_view tail;
  if (text.size() > capacity) {
    tail = kCut;
    text = beginning(text, capacity - kCut.size());
  }
  for (Word& target : words) {
    Chars chars{};
    const std::size_t of_text = text.copy(chars.data(), chars.size());
    const std::size_t of_tail = tail.copy(chars.data() + of_text, chars.size() - of_text);
    text.remove_prefix(of_text);
    tail.remove_prefix(of_tail);
    target.store(std::bit_cast<std::uint64_t>(chars));
    if (of_text + of_tail < sizeof(Word)) return;  // it ends with a zero
  }
}

std::string read_text(std::span<const Word> words) {
  std::string text;
  for (const Word& each : words) {
    const auto chars = std::bit_cast<Chars>(each.load());
    const auto end = std::ranges::find(chars, '\0');
    text.append(chars.begin(), end);
    if (end != chars.end()) break;
  }
  return text;
}

}  // namespace lockstep
