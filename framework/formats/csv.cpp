#include "framework/formats/csv.h"

#include <algorithm>
#include <array>
#include <cmath>
#include <cstdint>
#include <functional>
#include <limits>
#include <utility>

#include "framework/base/errors.h"
#include "framework/base/memory.h"
#include "framework/base/number_text.h"
#include "framework/base/text.h"
#include "framework/formats/content_reader.h"
#include "framework/formats/utf8.h"

namespace lockstep::formats {
namespace {

constexpr std::string_view kByteOrderMark = "\xef\xbb\xbf";

// What names of columns are sorted by: those that differ by blanks at their ends are neighbours.
std::pair<std::string_view, std::string_view> sorted_by(std::string_view name) {
  return {trimmed(name), name};
}

constexpr std::size_t kLongestName = 1000;  // as keys of columns have it

[[noreturn]] void fail_line(const std::string& path, std::size_t line, const std::string& rule) {
  fail_file(path, str("line ", line, ": ", rule));
}

// A first line without an end may be as long as its file.
constexpr std::size_t kHintedBytes = std::size_t{1} << 16;

// "; is the separator ';'?", and what to write, if the line of a header has another one more often
// than `separator`.
std::string separator_hint(std::string_view line, char separator) {
  if (line.starts_with(kByteOrderMark)) line.remove_prefix(kByteOrderMark.size());
  if (line.starts_with("sep=")) {
    return "; its first line, 'sep=', is for Excel: take it out, so that the names are the first";
  }
  std::array<std::size_t, 256> counts{};  // of bytes outside of quotes
  bool is_quoted = false;
  for (const char byte : line) {
    if (byte == '"') is_quoted = !is_quoted;
    if (!is_quoted) ++counts[static_cast<unsigned char>(byte)];
  }
  const auto count = [&](char byte) { return counts[static_cast<unsigned char>(byte)]; };
  const char likely = std::ranges::max(std::string_view(",;\t|"), {}, count);
  if (count(likely) <= count(separator)) return "";
  const bool is_tab = likely == '\t';
  const std::string text(1, likely);
  return str("; is the separator ", is_tab ? "a tab" : "'" + text + "'", "? data.separator: \"",
             is_tab ? "\\t" : text, "\" says so");
}

// Takes the text of the file at `path` apart, a field at a time, and appends each field's own text
// to `fields`. Messages end with `hint`.
class CsvScanner {
 public:
  enum class After { field, line, text };

  CsvScanner(const std::string& path, std::string_view text, char separator,
             const std::string& hint, std::string& fields)
      : path_(path), text_(text), separator_(separator), hint_(hint), fields_(fields) {
    for (const char byte : {separator, '"', '\r', '\n', '\0'}) {
      ends_run_[static_cast<unsigned char>(byte)] = true;
    }
    std::erase(blanks_, separator);
    for (const char blank : blanks_) is_blank_[static_cast<unsigned char>(blank)] = true;
    if (text_.starts_with(kByteOrderMark)) at_ = kByteOrderMark.size();
    drop_blank_lines();
  }

  [[nodiscard]] bool at_end() const { return at_ == text_.size(); }
  /// How much of the text has been read, from 0 to 1.
  [[nodiscard]] double done() const {
    return static_cast<double>(at_) / static_cast<double>(text_.size());
  }
  [[nodiscard]] std::size_t line() const { return line_; }
  /// From here on fields may have any length.
  void end_header() { longest_ = std::string::npos; }

  /// Takes the next field and says what follows it: another one of its line, a line, or nothing.
  After next() {
    field_ = fields_.size();
    const std::size_t begin = behind_blanks(at_);
    if (begin < text_.size() && text_[begin] == '"') {
      at_ = begin;
      take_quoted();
    } else {
      take_plain();
    }
    if (at_end()) return After::text;
    const char found = text_[at_++];
    if (found == separator_) return After::field;
    if (found == '\r') ++at_;
    ++line_;
    return at_end() ? After::text : After::line;
  }

 private:
  // Those at the text's end.
  void drop_blank_lines() {
    const std::size_t last = text_.find_last_not_of(blanks_ + "\r\n");
    if (last == std::string::npos || last < at_) {
      text_ = text_.substr(0, at_);
      return;
    }
    const std::size_t end = text_.find('\n', last + 1);
    if (end != std::string::npos) text_ = text_.substr(0, end + 1);
  }

  // Where the blanks that may begin at `at` end.
  [[nodiscard]] std::size_t behind_blanks(std::size_t at) const {
    while (at < text_.size() && is_blank_[static_cast<unsigned char>(text_[at])]) ++at;
    return at;
  }

  // Whether a field can end here.
  [[nodiscard]] bool at_field_end() const {
    if (at_end()) return true;
    const char byte = text_[at_];
    return byte == separator_ || byte == '\n' ||
           (byte == '\r' && text_.compare(at_, 2, "\r\n") == 0);
  }

  // Appends the text from `begin` to where the scanner is.
  void keep_from(std::size_t begin) {
    if (fields_.size() - field_ + (at_ - begin) > longest_) {
      fail(str("the name of a column is longer than ", kLongestName, " bytes"));
    }
    fields_.append(text_, begin, at_ - begin);
  }

  void take_plain() {
    const std::size_t begin = at_;
    while (!at_end() && !ends_run_[static_cast<unsigned char>(text_[at_])]) ++at_;
    keep_from(begin);
    if (at_field_end()) return;
    const char byte = text_[at_];
    if (byte == '"') fail("a quote inside a field that doesn't begin with one");
    if (byte == '\0') fail_zero_byte();
    fail("a carriage return without a line feed behind it, outside of quotes");
  }

  void take_quoted() {
    const std::size_t first_line = line_;
    for (++at_; !at_end(); ++at_) {
      const std::size_t begin = at_;
      while (!at_end() && text_[at_] != '"' && text_[at_] != '\0') {
        if (text_[at_++] == '\n') ++line_;
      }
      keep_from(begin);
      if (at_end()) break;
      if (text_[at_] == '\0') fail_zero_byte();
      ++at_;
      if (!at_end() && text_[at_] == '"') {
        fields_ += '"';
        continue;
      }
      at_ = behind_blanks(at_);
      if (!at_field_end()) fail("text behind the quote that closes a field");
      return;
    }
    line_ = first_line;
    fail("a quote opens here, and none closes it");
  }

  [[noreturn]] void fail(const std::string& rule) const { fail_line(path_, line_, rule + hint_); }
  [[noreturn]] void fail_zero_byte() const { fail("a zero byte: it is no text, or not in UTF-8"); }

  const std::string& path_;
  std::string_view text_;
  char separator_;
  const std::string& hint_;
  std::string& fields_;
  std::size_t field_ = 0;               // where the field begins in fields_
  std::size_t longest_ = kLongestName;  // of a field
  std::array<bool, 256> ends_run_{};    // bytes that are not just a part of a plain field
  std::string blanks_ = " \t";          // but a separator, which stands between empty fields
  std::array<bool, 256> is_blank_{};    // by these
  std::size_t at_ = 0;
  std::size_t line_ = 1;
};

// A number of up to 15 digits without an exponent, as most are; none where it is none of these. Its
// digits and the power of ten below them are exact in a double: dividing them rounds once, to the
// double nearest to the number, which is what std::from_chars() finds in four times as long.
std::optional<double> short_number(std::string_view text) {
  constexpr std::size_t kMostDigits = 15;
  constexpr std::array<double, kMostDigits + 1> kPowers{
      1e0, 1e1, 1e2, 1e3, 1e4, 1e5, 1e6, 1e7, 1e8, 1e9, 1e10, 1e11, 1e12, 1e13, 1e14, 1e15};
  const bool is_negative = text.starts_with('-');
  if (is_negative) text.remove_prefix(1);
  if (text.size() > kMostDigits + 1) return std::nullopt;
  std::uint64_t digits = 0;
  std::size_t count = 0;
  std::size_t point = text.size();
  for (std::size_t i = 0; i < text.size(); ++i) {
    const auto digit = static_cast<unsigned>(text[i] - '0');
    if (digit <= 9) {
      digits = digits * 10 + digit;
      ++count;
    } else if (text[i] == '.' && point == text.size()) {
      point = i;
    } else {
      return std::nullopt;
    }
  }
  if (count == 0 || count > kMostDigits) return std::nullopt;
  const std::size_t behind = point == text.size() ? 0 : text.size() - point - 1;
  const double number = static_cast<double>(digits) / kPowers[behind];
  return is_negative ? -number : number;
}

}  // namespace

CsvFile::CsvFile(const std::string& path, CsvOptions options) : path_(path) {
  require(options.separator != '"' && options.separator != '\n' && options.separator != '\r' &&
              options.separator != '\0',
          "csv: the separator is a quote, a line's end or a zero byte, and must be another");
  const FileBytes content = content_of(path);
  const std::string_view text(reinterpret_cast<const char*>(content.bytes.data()),
                              content.bytes.size());
  require_memory(path_, text.size(), "its text takes");
  text_.reserve(text.size());
  if (is_utf16(text)) fail_file(path_, str("it is not in UTF-8; ", utf8_advice(path_, text)));
  const std::string_view begin = text.substr(0, kHintedBytes);
  separator_hint_ = separator_hint(begin.substr(0, begin.find('\n')), options.separator);
  CsvScanner scanner(path_, text, options.separator, separator_hint_, text_);
  if (scanner.at_end()) fail_file(path_, "it is empty, but must have a header");
  ends_ = {0};
  // The header's fields count as row 0 until they are known.
  for (bool more = true; more;) {
    const std::size_t line = scanner.line();
    std::size_t fields = 0;
    auto after = CsvScanner::After::field;
    while (after == CsvScanner::After::field) {
      after = scanner.next();
      end_field(scanner.done());
      ++fields;
    }
    if (header_.empty()) {
      take_header(fields);
      scanner.end_header();
      first_line_ = scanner.line();
    } else {
      if (fields != header_.size()) {
        const Ragged ragged{rows_, fields};
        if (!options.keeps_ragged) fail_line(path_, line, told(ragged));
        ragged_.push_back(ragged);
        for (std::size_t i = fields; i < header_.size(); ++i) end_field(scanner.done());
        ends_.resize((rows_ + 1) * header_.size() + 1);
        ends_.back() = text_.size();
      }
      ++rows_;
    }
    more = after == CsvScanner::After::line;
  }
  check_utf8(text);
}

// Of the fields, so that a message can name the place.
void CsvFile::check_utf8(std::string_view content) const {
  const std::size_t place = first_not_utf8(text_);
  if (place == std::string::npos) return;
  const auto end = std::ranges::upper_bound(ends_, place);
  const auto before = static_cast<std::size_t>(end - ends_.begin());  // 0: in the header
  fail_line(
      path_, before == 0 ? 1 : line_of((before - 1) / columns()),
      str(before == 0 ? "the header" : str("column '", cut(header_[(before - 1) % columns()]), "'"),
          " is not in UTF-8; ", utf8_advice(path_, content)));
}

void CsvFile::end_field(double done) {
  if (ends_.size() == ends_.capacity()) make_room(done);
  ends_.push_back(text_.size());
}

// Rows are alike: from the part of the text that is done follows how many fields there will be.
void CsvFile::make_room(double done) {
  std::size_t more = 2 * ends_.capacity();
  if (rows_ > 0) {
    const auto all = static_cast<std::size_t>(1.1 * static_cast<double>(ends_.size()) / done);
    if (lack_of_memory(all * sizeof(std::size_t)).empty()) more = std::max(more, all);
  }
  require_memory(path_, more * sizeof(std::size_t),
                 str("a table of ", ends_.size(), " fields and more takes"));
  ends_.reserve(more);
}

// The names are the fields so far.
void CsvFile::take_header(std::size_t fields) {
  constexpr std::size_t kBytesBeside = 100;  // what containers take for a name
  require_memory(path_, text_.size() + fields * kBytesBeside,
                 str("a header of ", fields, " names takes"));
  header_.reserve(fields);
  by_name_.resize(fields);
  for (std::size_t i = 0; i < fields; ++i) {
    header_.emplace_back(text_, ends_[i], ends_[i + 1] - ends_[i]);
    by_name_[i] = i;
  }
  std::ranges::sort(by_name_, std::less<>(), [&](std::size_t i) { return sorted_by(header_[i]); });
  check_header();
  ends_ = {text_.size()};
}

std::optional<std::size_t> CsvFile::find(std::string_view name) const {
  const auto alike = std::ranges::equal_range(by_name_, trimmed(name), std::less<>(),
                                              [&](std::size_t i) { return trimmed(header_[i]); });
  const auto same = std::ranges::lower_bound(alike, sorted_by(name), std::less<>(),
                                             [&](std::size_t i) { return sorted_by(header_[i]); });
  if (same != alike.end() && header_[*same] == name) return *same;
  return alike.size() == 1 ? std::optional(alike.front()) : std::nullopt;
}

std::size_t CsvFile::column(std::string_view name) const {
  if (const auto found = find(name)) return *found;
  const bool are_numbers = std::ranges::all_of(
      header_, [](const std::string& text) { return csv_number(text).has_value(); });
  // Only now: a message with all names takes long where there are many.
  throw ValueError(str("csv: '", path_, "' has no column '", cut(name), "'",
                       did_you_mean(name, header_), "; it has ", quoted(header_),
                       are_numbers ? ": its first line must name the columns" : "",
                       separator_hint_));
}

std::string_view CsvFile::text(std::size_t row, std::size_t column) const {
  require(row < rows_ && column < columns(), "csv: there is no row ", row, " with a column ",
          column, ": '", path_, "' has ", rows(), " rows and ", columns(), " columns");
  return field(row * columns() + column);
}

std::vector<double> CsvFile::numbers(std::span<const std::size_t> columns) const {
  std::vector<double> numbers(columns.size() * rows_);
  for (const std::size_t column : columns) {
    if (rows_ > 0) (void)text(0, column);  // which must be there
  }
  for (std::size_t row = 0; row < rows_; ++row) {
    for (std::size_t i = 0; i < columns.size(); ++i) {
      numbers[i * rows_ + row] = csv_number(field(row * this->columns() + columns[i]))
                                     .value_or(std::numeric_limits<double>::quiet_NaN());
    }
  }
  return numbers;
}

std::string CsvFile::told(std::size_t row, std::size_t column, const std::string& rule) const {
  return str("column '", cut(header_[column]), "': '", cut(text(row, column)), "' ", rule);
}

std::string CsvFile::told(const Ragged& line) const {
  const bool is_blank = line.fields == 1 && trimmed(field(line.row * columns())).empty();
  return str(is_blank ? "it is blank" : "it has ",
             is_blank ? "" : counted(static_cast<std::int64_t>(line.fields), "field"),
             ", but the header has ", header_.size(),
             !separator_hint_.empty() ? separator_hint_
             : line.fields > header_.size()
                 ? "; a field with a separator in it needs quotes, and a line must not end with one"
                 : "");
}

void CsvFile::refuse(std::size_t row, std::size_t column, const std::string& rule) const {
  fail_line(path_, line_of(row), told(row, column, rule));
}

void CsvFile::check_header() const {
  for (std::size_t i = 0; i < header_.size(); ++i) {
    const bool is_index = i == 0 && header_.size() > 1;
    if (trimmed(header_[i]).empty() && !is_index) {
      fail_line(path_, 1,
                str("the name of column number ", i, " is empty",
                    !separator_hint_.empty()           ? separator_hint_
                    : i > 0 && i + 1 == header_.size() ? ": is there a separator at the line's end?"
                                                       : ""));
    }
  }
  // Equal names are neighbours there.
  const auto twice = std::ranges::adjacent_find(
      by_name_, [&](std::size_t a, std::size_t b) { return header_[a] == header_[b]; });
  if (twice != by_name_.end())
    fail_line(path_, 1, str("the name '", cut(header_[*twice]), "' occurs twice"));
}

// Each row takes one line, and one for each line feed in its fields.
std::size_t CsvFile::lines(std::size_t begin, std::size_t end) const {
  const auto start_of = [&](std::size_t row) {
    return text_.begin() + static_cast<std::ptrdiff_t>(ends_[row * columns()]);
  };
  return end - begin + static_cast<std::size_t>(std::count(start_of(begin), start_of(end), '\n'));
}

std::optional<double> csv_number(std::string_view text) {
  if (const auto number = short_number(text)) return number;
  text = trimmed(text);
  if (text.starts_with('+') && !text.starts_with("+-")) text.remove_prefix(1);
  const auto number = parse_number<double>(text);
  return number && std::isfinite(*number) ? number : std::nullopt;
}

std::string_view trimmed(std::string_view text) {
  const auto is_blank = [](char byte) { return byte == ' ' || byte == '\t'; };
  while (!text.empty() && is_blank(text.front())) text.remove_prefix(1);
  while (!text.empty() && is_blank(text.back())) text.remove_suffix(1);
  return text;
}

bool has_unseen_ends(std::string_view text) {
  // U+0085, 00A0, 00AD, 1680, 2000 to 200F, 2028 to 202F, 205F to 206F, 3000 and FEFF in UTF-8.
  static const std::vector<std::string> spaces = [] {
    std::vector<std::string> made{"\xc2\x85",     "\xc2\xa0",     "\xc2\xad",
                                  "\xe1\x9a\x80", "\xe3\x80\x80", "\xef\xbb\xbf"};
    for (int last = 0x80; last <= 0xaf; ++last) {
      const bool is_general = last <= 0x8f || last >= 0xa8;
      if (is_general) made.push_back(std::string("\xe2\x80") + static_cast<char>(last));
      if (last >= 0x9f) made.push_back(std::string("\xe2\x81") + static_cast<char>(last));
    }
    return made;
  }();
  const auto is_unseen = [](unsigned char byte) { return byte <= ' ' || byte == 0x7f; };
  return text.empty() || is_unseen(text.front()) || is_unseen(text.back()) ||
         std::ranges::any_of(spaces, [&](const std::string& space) {
           return text.starts_with(space) || text.ends_with(space);
         });
}

std::string quoted(const std::vector<std::string>& names) {
  constexpr std::size_t kMost = 1000;
  std::string text;
  for (const std::string& name : names) text += str(text.empty() ? "" : ", ", "'", name, "'");
  return shortened(text, kMost);
}

std::string csv_line(const std::vector<std::string>& fields, CsvOptions options) {
  require(!fields.empty(), "csv_line: a line has one field at least");
  const std::string special{options.separator, '"', '\r', '\n'};
  std::string line;
  for (const std::string& field : fields) {
    require(field.find('\0') == std::string::npos, "csv_line: the field '", cut(field),
            "' has a zero byte");
    if (&field != &fields.front()) line += options.separator;
    // A line of one empty field would be an empty line; a byte order mark would be skipped.
    const bool is_plain = field.find_first_of(special) == std::string::npos && !field.empty() &&
                          !field.starts_with(kByteOrderMark);
    if (is_plain) {
      line += field;
      continue;
    }
    line += '"';
    for (const char byte : field) line += byte == '"' ? "\"\"" : std::string(1, byte);
    line += '"';
  }
  return line + '\n';
}

}  // namespace lockstep::formats
