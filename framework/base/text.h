#pragma once

#include <array>
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <cstdio>
#include <functional>
#include <iterator>
#include <locale>
#include <new>
#include <sstream>
#include <string>
#include <string_view>
#include <type_traits>
#include <vector>

#include <locale.h>

#include "framework/base/errors.h"
#include "framework/base/non_copyable.h"

namespace lockstep {

/// A text that operator<< writes. A program may have a locale that groups digits: texts don't.
struct TextStream : std::ostringstream {
  TextStream() { imbue(std::locale::classic()); }
};

/// While this lives, printf(), scanf(), strerror() and fnmatch() of this thread ignore the locale
/// of the program.
class ClassicLocale : private NonCopyable {
 public:
  ClassicLocale() noexcept;
  ~ClassicLocale() { ::uselocale(before_); }

 private:
  locale_t before_;
};

/// Returns NaN without its sign, which is chance, and any other value as it is.
template <typename Value>
[[nodiscard]] decltype(auto) shown_number(const Value& value) {
  if constexpr (std::is_floating_point_v<Value>) {
    return std::isnan(value) ? std::abs(value) : value;
  } else {
    return (value);
  }
}

/// Returns the arguments as one string, each as operator<< prints it. For messages.
template <typename... Parts>
[[nodiscard]] std::string str(const Parts&... parts) {
  TextStream out;
  (out << ... << shown_number(parts));
  if (out.bad()) throw std::bad_alloc();  // a stream would cut the text instead
  return out.str();
}

/// Throws a ValueError, or another error, with the text str(parts...) unless `holds`.
template <typename E = ValueError, typename... Parts>
void require(bool holds, const Parts&... parts) {
  if (!holds) [[unlikely]] {
    throw E(lockstep::str(parts...));  // c10 has a str, too
  }
}

/// The same for a number: "`what` is 0, but must be at least 1".
template <typename Number>
void require_at_least(std::type_identity_t<Number> least, std::string_view what, Number value) {
  lockstep::require(value >= least, what, " is ", value, ", but must be at least ", least);
}

/// Returns the values as printf() shows them by `pattern`, which is short.
template <typename... Values>
[[nodiscard]] std::string formatted(const char* pattern, Values... values) {
  const ClassicLocale classic;
  std::array<char, 128> text{};
  std::snprintf(text.data(), text.size(), pattern, shown_number(values)...);
  return text.data();
}

/// Returns `values` separated by `separator`, for example "1, 2, 3".
template <typename Range>
[[nodiscard]] std::string join(const Range& values, std::string_view separator = ", ") {
  TextStream out;
  std::string_view before;
  for (const auto& value : values) {
    out << before << shown_number(value);
    before = separator;
  }
  return out.str();
}

/// Returns f(value) of each of `values`. `f` may change or move them, or be a pointer to a member.
template <typename Range, typename F>
[[nodiscard]] auto mapped(Range&& values, const F& f) {
  std::vector<std::decay_t<decltype(std::invoke(f, *std::begin(values)))>> results;
  for (auto&& value : values) results.push_back(std::invoke(f, value));
  return results;
}

/// Returns "a, b, c" or, for more than `most` names, the first ones: "a, b and 98 more".
[[nodiscard]] std::string listed(const std::vector<std::string>& names, std::size_t most = 20);

/// Returns a number with its noun, for messages: "1 replica", "2 replicas". The plural is `many`
/// or, without one, `one` with an s.
[[nodiscard]] std::string counted(std::int64_t count, std::string_view one,
                                  std::string_view many = {});

/// Returns the last `digits` hexadecimal digits of a number, in lower case.
[[nodiscard]] std::string hexadecimal(std::uint64_t number, std::size_t digits);

/// Returns the bytes of the UTF-8 letter that a text begins with; 0 if it begins with none.
[[nodiscard]] std::size_t letter_size(std::string_view text) noexcept;

/// Returns a text for a terminal, which control characters would command: "\\x1b", say, replaces
/// each of their bytes (C0, DEL and C1, also where C1 is no UTF-8) that is not `kept`.
[[nodiscard]] std::string printable(std::string_view text, std::string_view kept = "\n\t");

/// Returns `text` with the letters of ASCII in lower case.
[[nodiscard]] std::string lower(std::string_view text);

/// Returns the first `most` bytes of `text`, or a few less so that no UTF-8 letter is cut.
[[nodiscard]] std::string_view beginning(std::string_view text, std::size_t most) noexcept;

/// Returns `text` if it has at most `most` bytes, otherwise its beginning() and "…".
[[nodiscard]] std::string cut(std::string_view text, std::size_t most = 60);

/// Returns `text` or, beyond `most` bytes, its beginning and how many bytes were left out.
[[nodiscard]] std::string shortened(std::string_view text, std::size_t most);

/// True if `name` matches the pattern ("*.bias"), as fnmatch(3) without flags does it.
[[nodiscard]] bool matches_pattern(const std::string& pattern, const std::string& name);

/// Returns the first candidate of own_words(word); else the nearest by edit distance (a third of
/// letters may differ, but always one; upper case counts as lower); else one that shares all words
/// of the shorter name at an end, as "epochs" and "max_epochs" do; else "". See base/other_words.h.
[[nodiscard]] std::string nearest(std::string_view word,
                                  const std::vector<std::string>& candidates);

/// Returns " (did you mean 'X'?)" with the nearest candidate, or "" without one.
[[nodiscard]] std::string did_you_mean(std::string_view word,
                                       const std::vector<std::string>& candidates);

}  // namespace lockstep
