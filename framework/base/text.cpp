#include "framework/base/text.h"

#include <algorithm>
#include <span>

#include <fnmatch.h>

#include "framework/base/other_words.h"

namespace lockstep {
namespace {

// Optimal string alignment: Levenshtein's distance, with a swap of neighbours counted as one step.
std::size_t edit_distance(std::string_view a, std::string_view b) {
  std::vector<std::vector<std::size_t>> d(a.size() + 1, std::vector<std::size_t>(b.size() + 1));
  for (std::size_t i = 0; i <= a.size(); ++i) d[i][0] = i;
  for (std::size_t j = 0; j <= b.size(); ++j) d[0][j] = j;
  for (std::size_t i = 1; i <= a.size(); ++i) {
    for (std::size_t j = 1; j <= b.size(); ++j) {
      const std::size_t substitution = a[i - 1] == b[j - 1] ? 0 : 1;
      d[i][j] = std::min({d[i - 1][j] + 1, d[i][j - 1] + 1, d[i - 1][j - 1] + substitution});
      if (i > 1 && j > 1 && a[i - 1] == b[j - 2] && a[i - 2] == b[j - 1]) {
        d[i][j] = std::min(d[i][j], d[i - 2][j - 2] + 1);
      }
    }
  }
  return d[a.size()][b.size()];
}

// True if `name` begins or ends with these words: "epochs" is a part of "max_epochs".
bool is_part(const std::string& words, const std::string& name) {
  return words.size() > 1 && (name.starts_with(words + "_") || name.ends_with("_" + words));
}

}  // namespace

ClassicLocale::ClassicLocale() noexcept {
  static const locale_t classic = ::newlocale(LC_ALL_MASK, "C", nullptr);  // never freed
  before_ = ::uselocale(classic);
}

std::string listed(const std::vector<std::string>& names, std::size_t most) {
  if (names.size() <= most) return join(names);
  return str(join(std::span(names).first(most)), " and ", names.size() - most, " more");
}

std::string counted(std::int64_t count, std::string_view one, std::string_view many) {
  std::string text = std::to_string(count) + ' ';
  if (count == 1 || many.empty()) text += one;
  if (count != 1) text += many.empty() ? "s" : many;
  return text;
}

std::string hexadecimal(std::uint64_t number, std::size_t digits) {
  std::string text(digits, '0');
  for (; digits > 0; number >>= 4U) text[--digits] = "0123456789abcdef"[number & 15U];
  return text;
}

std::size_t letter_size(std::string_view text) noexcept {
  const auto byte = [&](std::size_t i) -> unsigned {
    return i < text.size() ? static_cast<unsigned char>(text[i]) : 0U;
  };
  const unsigned first = byte(0);
  const unsigned second = byte(1);
  if (first < 0x80) return 1;
  if (first < 0xc2 || first > 0xf4) return 0;
  // Overlong forms, surrogates, and numbers beyond the last letter.
  if ((first == 0xe0 && second < 0xa0) || (first == 0xed && second > 0x9f) ||
      (first == 0xf0 && second < 0x90) || (first == 0xf4 && second > 0x8f)) {
    return 0;
  }
  const std::size_t size = first < 0xe0 ? 2 : first < 0xf0 ? 3 : 4;
  for (std::size_t i = 1; i < size; ++i) {
    if ((byte(i) & 0xc0U) != 0x80) return 0;
  }
  return size;
}

std::string printable(std::string_view text, std::string_view kept) {
  std::string shown;
  while (!text.empty()) {
    const std::size_t size = letter_size(text);
    const std::string_view letter = text.substr(0, std::max<std::size_t>(size, 1));
    const auto first = static_cast<unsigned char>(letter.front());
    const auto last = static_cast<unsigned char>(letter.back());
    const bool is_control = first < 0x20 || first == 0x7f || (first == 0xc2 && last < 0xa0) ||
                            (size == 0 && first < 0xa0);
    if (!is_control || kept.find(letter.front()) != kept.npos) {
      shown += letter;
    } else {
      for (const char byte : letter)
        shown += "\\x" + hexadecimal(static_cast<unsigned char>(byte), 2);
    }
    text.remove_prefix(letter.size());
  }
  return shown;
}

std::string lower(std::string_view text) {
  std::string result(text);
  for (char& letter : result) {
    if (letter >= 'A' && letter <= 'Z') letter = static_cast<char>(letter - 'A' + 'a');
  }
  return result;
}

std::string_view beginning(std::string_view text, std::size_t most) noexcept {
  if (text.size() <= most) return text;
  while (most > 0 && (static_cast<unsigned char>(text[most]) & 0xc0U) == 0x80) --most;
  return text.substr(0, most);
}

std::string cut(std::string_view text, std::size_t most) {
  if (text.size() <= most) return std::string(text);
  return str(beginning(text, most), "…");
}

std::string shortened(std::string_view text, std::size_t most) {
  if (text.size() <= most) return std::string(text);
  const std::string_view begin = beginning(text, most);
  return str(begin, "... (", text.size() - begin.size(), " bytes more)");
}

std::string nearest(std::string_view word, const std::vector<std::string>& candidates) {
  constexpr std::size_t kLongest = 1000;  // of names
  const std::string wanted = folded(word.substr(0, kLongest));
  const std::vector<std::string> own = own_words(wanted);
  for (const std::string& word_here : own) {
    if (std::ranges::count(candidates, word_here) > 0) return word_here;
  }
  std::string best, holder;
  std::size_t best_distance = 0, most_shared = 0;
  for (const std::string& candidate : candidates) {
    const std::string name = folded(candidate);
    const auto [shorter, longer] = std::ranges::minmax({wanted, name}, {}, &std::string::size);
    if (own.empty() && is_part(shorter, longer) && shorter.size() > most_shared) {
      holder = candidate;
      most_shared = shorter.size();
    }
    const std::size_t allowed = std::max<std::size_t>(1, longer.size() / 3);
    if (longer.size() - shorter.size() > allowed) continue;  // at least so many are inserted
    const std::size_t distance = edit_distance(wanted, name);
    if (distance <= allowed && (best.empty() || distance < best_distance)) {
      best = candidate;
      best_distance = distance;
    }
  }
  return best.empty() ? holder : best;
}

std::string did_you_mean(std::string_view word, const std::vector<std::string>& candidates) {
  const std::string candidate = nearest(word, candidates);
  return candidate.empty() ? "" : " (did you mean '" + candidate + "'?)";
}

bool matches_pattern(const std::string& pattern, const std::string& name) {
  const ClassicLocale classic;
  return ::fnmatch(pattern.c_str(), name.c_str(), 0) == 0;
}

}  // namespace lockstep
