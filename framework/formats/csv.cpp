#include "framework/formats/csv.h"

#include <algorithm>
#include <charconv>
#include <cmath>
#include <optional>
#include <system_error>
#include <unordered_set>

#include "framework/base/text.h"
#include "framework/formats/content_reader.h"

namespace lockstep::formats {
namespace {

constexpr std::string_view kByteOrderMark = "\xef\xbb\xbf";

// Takes a text apart, a field at a time, and moves each field's own text to the text's front, so
// that fields lie end to end there.
class CsvScanner {
 public:
  enum class After { field, line, text };

  CsvScanner(std::string& text, char separator) : text_(text), separator_(separator) {
    if (text_.starts_with(kByteOrderMark)) at_ = kByteOrderMark.size();
    drop_blank_lines();
  }

  [[nodiscard]] bool at_end() const { return at_ == text_.size(); }
  [[nodiscard]] std::size_t line() const { return line_; }
  /// Where the last field ends among those moved.
  [[nodiscard]] std::size_t end() const { return end_; }
  /// What is wrong with the text at line(); "" if nothing is.
  [[nodiscard]] const std::string& error() const { return error_; }

  /// Moves the next field and says what follows it: another one of its line, a line, or nothing.
  After next() {
    if (!at_end() && text_[at_] == '"') {
      take_quoted();
    } else {
      take_plain();
    }
    if (!error_.empty() || at_end()) return After::text;
    const char found = text_[at_++];
    if (found == separator_) return After::field;
    if (found == '\r') ++at_;
    ++line_;
    return at_end() ? After::text : After::line;
  }

 private:
  // Those at the text's end. A separator is no blank: it stands between empty fields.
  void drop_blank_lines() {
    std::string blanks = " \t\r\n";
    std::erase(blanks, separator_);
    const std::size_t last = text_.find_last_not_of(blanks);
    if (last == std::string::npos || last < at_) return text_.resize(at_);
    const std::size_t end = text_.find('\n', last + 1);
    if (end != std::string::npos) text_.resize(end + 1);
  }

  // Whether a field can end here.
  [[nodiscard]] bool at_field_end() const {
    if (at_end()) return true;
    const char byte = text_[at_];
    return byte == separator_ || byte == '\n' ||
           (byte == '\r' && text_.compare(at_, 2, "\r\n") == 0);
  }

  void keep(char byte) { text_[end_++] = byte; }

  void take_plain() {
    while (!at_field_end()) {
      const char byte = text_[at_++];
      if (byte == '"') {
        error_ = "a quote inside a field that doesn't begin with one";
      } else if (byte == '\r') {
        error_ = "a carriage return without a line feed behind it, outside of quotes";
      } else if (byte == '\0') {
        error_ = "a zero byte: it is no text, or not in UTF-8";
      }
      if (!error_.empty()) return;
      keep(byte);
    }
  }

  void take_quoted() {
    const std::size_t first_line = line_;
    for (++at_; !at_end(); keep(text_[at_++])) {
      if (text_[at_] == '\n') ++line_;
      if (text_[at_] == '\0') {
        error_ = "a zero byte: it is no text, or not in UTF-8";
        return;
      }
      if (text_[at_] != '"') continue;
      ++at_;
      if (!at_end() && text_[at_] == '"') continue;
      if (!at_field_end()) error_ = "text behind the quote that closes a field";
      return;
    }
    line_ = first_line;
    error_ = "a quote opens here, and none closes it";
  }

  std::string& text_;
  char separator_;
  std::size_t at_ = 0;
  std::size_t end_ = 0;
  std::size_t line_ = 1;
  std::string error_;
};

// "; is the separator ';'?" where a whole header is one name.
std::string separator_hint(const std::vector<std::string>& header) {
  if (header.size() > 1) return "";
  const std::size_t found = header[0].find_first_of(",;|\t");
  if (found == std::string::npos) return "";
  const char separator = header[0][found];
  return str("; is the separator ", separator == '\t' ? "a tab" : str("'", separator, "'"), "?");
}

}  // namespace

CsvFile::CsvFile(const std::string& path, CsvOptions options) : path_(path) {
  require(options.separator != '"' && options.separator != '\n' && options.separator != '\r' &&
              options.separator != '\0',
          "csv: the separator is a quote, a line's end or a zero byte, and must be another");
  {
    const FileBytes content = content_of(path);
    text_.assign(content.span().begin(), content.span().end());
  }
  CsvScanner scanner(text_, options.separator);
  if (scanner.at_end()) fail_file(path_, "it is empty, but must have a header");
  ends_ = {0};
  // The header's fields count as row 0 until they are known.
  for (bool more = true; more;) {
    const std::size_t line = scanner.line();
    std::size_t fields = 0;
    auto after = CsvScanner::After::field;
    while (after == CsvScanner::After::field) {
      after = scanner.next();
      if (!scanner.error().empty()) fail(scanner.line(), scanner.error());
      ends_.push_back(scanner.end());
      ++fields;
    }
    if (header_.empty()) {
      for (std::size_t i = 0; i < fields; ++i) {
        header_.emplace_back(text_, ends_[i], ends_[i + 1] - ends_[i]);
      }
      check_header();
      first_line_ = scanner.line();
      ends_ = {scanner.end()};
    } else if (fields != header_.size()) {
      fail(line, str("it has ", counted(static_cast<std::int64_t>(fields), "field"),
                     ", but the header has ", header_.size()));
    }
    more = after == CsvScanner::After::line;
  }
  text_.resize(scanner.end());
  text_.shrink_to_fit();
}

std::optional<std::size_t> CsvFile::find(std::string_view name) const {
  const auto place = [&](auto found) { return static_cast<std::size_t>(found - header_.begin()); };
  const auto same = std::ranges::find(header_, name);
  if (same != header_.end()) return place(same);
  const auto is_alike = [&](const std::string& other) { return trimmed(other) == trimmed(name); };
  const auto alike = std::ranges::find_if(header_, is_alike);
  const bool is_one =
      alike != header_.end() && std::find_if(alike + 1, header_.end(), is_alike) == header_.end();
  return is_one ? std::optional(place(alike)) : std::nullopt;
}

std::size_t CsvFile::column(std::string_view name) const {
  const auto found = find(name);
  require(found.has_value(), "csv: '", path_, "' has no column '", cut(name), "'",
          did_you_mean(name, header_), "; it has ", quoted(header_), separator_hint(header_));
  return *found;
}

std::string_view CsvFile::text(std::size_t row, std::size_t column) const {
  require(row < rows() && column < columns(), "csv: there is no row ", row, " with a column ",
          column, ": '", path_, "' has ", rows(), " rows and ", columns(), " columns");
  const std::size_t field = row * columns() + column;
  return std::string_view(text_).substr(ends_[field], ends_[field + 1] - ends_[field]);
}

std::vector<std::string_view> CsvFile::texts(std::size_t column) const {
  std::vector<std::string_view> texts;
  texts.reserve(rows());
  for (std::size_t row = 0; row < rows(); ++row) texts.push_back(text(row, column));
  return texts;
}

std::vector<double> CsvFile::numbers(std::size_t column) const {
  std::vector<double> numbers;
  numbers.reserve(rows());
  for (std::size_t row = 0; row < rows(); ++row) {
    const auto number = csv_number(text(row, column));
    if (!number) refuse(row, column, "is no finite number");
    numbers.push_back(*number);
  }
  return numbers;
}

bool CsvFile::is_numeric(std::size_t column) const {
  for (std::size_t row = 0; row < rows(); ++row) {
    if (!csv_number(text(row, column))) return false;
  }
  return true;
}

void CsvFile::refuse(std::size_t row, std::size_t column, const std::string& rule) const {
  fail(line_of(row),
       str("column '", cut(header_[column]), "': '", cut(text(row, column)), "' ", rule));
}

void CsvFile::fail(std::size_t line, const std::string& rule) const {
  fail_file(path_, str("line ", line, ": ", rule));
}

void CsvFile::check_header() const {
  std::unordered_set<std::string_view> names;
  for (std::size_t i = 0; i < header_.size(); ++i) {
    const bool is_index = i == 0 && header_.size() > 1;
    if (header_[i].empty() && !is_index) {
      fail(1, str("the name of column number ", i, " is empty"));
    }
    if (!names.insert(header_[i]).second) {
      fail(1, str("the name '", cut(header_[i]), "' occurs twice"));
    }
  }
}

// Each row before takes one line, and one for each line feed in its fields.
std::size_t CsvFile::line_of(std::size_t row) const {
  const auto begin = text_.begin() + static_cast<std::ptrdiff_t>(ends_.front());
  const auto end = text_.begin() + static_cast<std::ptrdiff_t>(ends_[row * columns()]);
  return first_line_ + row + static_cast<std::size_t>(std::count(begin, end, '\n'));
}

std::optional<double> csv_number(std::string_view text) {
  text = trimmed(text);
  if (text.starts_with('+') && !text.starts_with("+-")) text.remove_prefix(1);
  double number = 0;
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), number);
  if (error != std::errc() || end != text.data() + text.size()) return std::nullopt;
  return std::isfinite(number) ? std::optional(number) : std::nullopt;
}

std::string_view trimmed(std::string_view text) {
  constexpr std::string_view kBlanks = " \t";
  text.remove_prefix(std::min(text.find_first_not_of(kBlanks), text.size()));
  text.remove_suffix(text.size() - (text.find_last_not_of(kBlanks) + 1));
  return text;
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
