#include "framework/storage/json_scanner.h"

#include <algorithm>

#include <nlohmann/json.hpp>

#include "framework/base/errors.h"

namespace lockstep::storage {

std::string in_quotes(std::string_view text) {
  return str("'", cut(text), "'");
}

bool JsonScanner::is_next(std::string_view token) {
  at_ = std::min(text_.find_first_not_of(" \t\n\r", at_), text_.size());
  return token.empty() ? at_ == text_.size() : text_.substr(at_).starts_with(token);
}

bool JsonScanner::take(std::string_view token) {
  if (!is_next(token)) return false;
  at_ += token.size();
  return true;
}

void JsonScanner::expect(std::string_view token) {
  if (!take(token)) refuse_next(token.empty() ? "its end" : in_quotes(token));
}

void JsonScanner::field(std::string_view mark, const char* name) {
  expect(mark);
  expect(str('"', name, '"'));
  expect(":");
  field_ = name;
}

std::string JsonScanner::text() {
  if (!is_next("\"")) refuse_next("a text in UTF-8");
  std::size_t end = at_ + 1;
  while (end < text_.size() && text_[end] != '"') end += text_[end] == '\\' ? 2U : 1U;
  const std::string_view token = text_.substr(at_, end + 1 - at_);
  const auto is_plain = [](char c) { return c >= ' ' && c <= '~' && c != '\\'; };
  std::string text;
  if (token.size() > 1 && token.front() == '"' && token.back() == '"' &&
      std::ranges::all_of(token, is_plain)) {
    text = token.substr(1, token.size() - 2);
  } else {
    const auto json = nlohmann::json::parse(token, nullptr, /*allow_exceptions=*/false);
    if (!json.is_string()) refuse_next("a text in UTF-8");
    text = json.get<std::string>();
  }
  at_ += token.size();
  return text;
}

void JsonScanner::refuse(const std::string& rule) const {
  throw DataError(str(refusal_, ": ", rule));
}

void JsonScanner::refuse_next(const std::string& expected) const {
  std::string next = cut(text_.substr(at_, text_.find('\n', at_) - at_));
  std::ranges::replace(next, '\0', '?');  // which would end the message
  const std::string place = field_.empty() ? "at its beginning" : "behind " + in_quotes(field_);
  refuse(str("the JSON has ", next.empty() ? "nothing" : "'" + next + "'", " ", place, " (line ",
             1 + std::ranges::count(text_.substr(0, at_), '\n'), ", byte ", at_, "), where ",
             expected, " should be"));
}

}  // namespace lockstep::storage
