#pragma once

#include <cstddef>
#include <limits>
#include <set>
#include <string>
#include <string_view>
#include <type_traits>

#include "framework/base/number_text.h"
#include "framework/base/text.h"

namespace lockstep::storage {

/// Returns a foreign text in quotes, for messages, cut to a line.
[[nodiscard]] std::string in_quotes(std::string_view text);

/// Takes JSON off a text's front, token by token, as a format has it. A token that does not fit is
/// a DataError that begins with `refusal` and says what should stand where. No tree of values is
/// built, and no text nests deeper than its format.
class JsonScanner {
 public:
  JsonScanner(std::string_view text, const char* refusal) : text_(text), refusal_(refusal) {}

  /// True if this comes next, behind blanks; "" stands for the end.
  [[nodiscard]] bool is_next(std::string_view token);
  /// The same, and takes the token if it comes next.
  [[nodiscard]] bool take(std::string_view token);
  void expect(std::string_view token);
  /// Takes the name of a field, behind the mark before it.
  void field(std::string_view mark, const char* name);
  /// Takes its value, too.
  template <typename Value>
  void field(std::string_view mark, const char* name, Value& value) {
    field(mark, name);
    value = next<Value>();
  }
  /// Returns the number of bytes taken.
  [[nodiscard]] std::size_t taken() const noexcept { return at_; }

  /// Takes a text, a number or a list of such.
  template <typename Value>
  [[nodiscard]] Value next() {
    if constexpr (std::is_arithmetic_v<Value>) {
      return number<Value>();
    } else if constexpr (std::is_same_v<Value, std::string>) {
      return text();
    } else {
      Value values;
      items("[]", [&] { values.push_back(next<typename Value::value_type>()); });
      return values;
    }
  }

  /// Takes a list or an object, as the brackets say. `item` takes each item.
  template <typename Item>
  void items(std::string_view brackets, const Item& item) {
    expect(brackets.substr(0, 1));
    if (take(brackets.substr(1))) return;
    do {
      item();
    } while (take(","));
    expect(brackets.substr(1));
  }
  /// Takes an object whose names stand once. `member` takes the value of each.
  template <typename Member>
  void members(const Member& member) {
    std::set<std::string> names;
    items("{}", [&] {
      const auto [name, is_new] = names.insert(next<std::string>());
      if (!is_new) refuse(str(in_quotes(*name), " stands twice"));
      expect(":");
      field_ = *name;
      member(*name);
    });
  }

  [[noreturn]] void refuse(const std::string& rule) const;

 private:
  [[nodiscard]] std::string text();
  template <typename Number>
  [[nodiscard]] Number number();
  [[noreturn]] void refuse_next(const std::string& expected) const;

  std::string_view text_;
  const char* refusal_;
  std::size_t at_ = 0;
  std::string field_;  // the last one that was taken
};

template <typename Number>
Number JsonScanner::number() {
  (void)is_next("");
  const std::size_t end = text_.find_first_not_of("+-.0123456789Ee", at_);
  const std::string_view token = text_.substr(at_, end - at_);
  const auto number = parse_number<Number>(token);
  const bool has_zeros = std::is_integral_v<Number> && token.size() > 1 && token[0] == '0';
  if (!number || has_zeros) {
    using Limits = std::numeric_limits<Number>;
    refuse_next(std::is_integral_v<Number>
                    ? str("a whole number from ", +Limits::min(), " to ", +Limits::max())
                    : "a number");
  }
  at_ += token.size();
  return *number;
}

}  // namespace lockstep::storage
