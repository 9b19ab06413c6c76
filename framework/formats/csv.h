#pragma once

#include <cstddef>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

namespace lockstep::formats {

struct CsvOptions {
  /// Between fields: one byte that is no quote and no line's end.
  char separator = ',';
  /// Whether lines with too few or too many fields are rows, too: see CsvFile::ragged().
  bool keeps_ragged = false;
};

/// A table of text as RFC 4180 has it. The first line names the columns, each other line is a row,
/// and every line has as many fields. A field in quotes may hold separators, line ends and doubled
/// quotes, and blanks around the quotes are passed over; without quotes it holds neither quote nor
/// line end. Lines end with LF or CRLF, the last one need not. A byte order mark of UTF-8 and blank
/// lines at the end are skipped; a gzip file is unpacked. The first of several columns need not
/// have a name (pandas' index has none): it is empty, or blanks.
///
/// DataError, with file and line, for what breaks these rules, another header name that is empty or
/// blanks, one that occurs twice or is longer than 1000 bytes, a zero byte, text that is not in
/// UTF-8, and an empty file; with the numbers for a table that does not fit into the memory that is
/// left. No rows are fine. Takes as much memory as the file's content and eight bytes a field. Any
/// thread. Messages say so if the header seems to have another separator.
class CsvFile {
 public:
  explicit CsvFile(const std::string& path, CsvOptions options = {});

  [[nodiscard]] const std::vector<std::string>& header() const noexcept { return header_; }
  [[nodiscard]] std::size_t columns() const noexcept { return header_.size(); }
  [[nodiscard]] std::size_t rows() const noexcept { return rows_; }

  /// The column of a name, or else the only one that differs by blanks at its ends alone, or none.
  [[nodiscard]] std::optional<std::size_t> find(std::string_view name) const;
  /// The same. ValueError, with the names that there are, if there is none.
  [[nodiscard]] std::size_t column(std::string_view name) const;

  /// A field's text, without its quotes. It lasts as long as this object.
  [[nodiscard]] std::string_view text(std::size_t row, std::size_t column) const;
  /// All of these columns, one behind another, as numbers, such as 3, -0.5 and 1e-3, whatever the
  /// locale; blanks around one are skipped. NaN for what is no finite number, also one that double
  /// can't hold. What lies together in the file is read together: much faster for some tens of
  /// columns of a wide table than one at a time.
  [[nodiscard]] std::vector<double> numbers(std::span<const std::size_t> columns) const;

  struct Ragged {
    std::size_t row;
    std::size_t fields;  ///< that it has
  };
  /// With CsvOptions::keeps_ragged: the rows whose fields are too few or too many, in their order.
  /// Their texts are nothing to be read: missing ones are empty, the last one may be several.
  [[nodiscard]] const std::vector<Ragged>& ragged() const noexcept { return ragged_; }

  /// The line of the file in which a row begins, from 1. Takes as long as all rows before.
  [[nodiscard]] std::size_t line_of(std::size_t row) const { return first_line_ + lines(0, row); }
  /// How many lines the rows from `begin` up to, not including, `end` take.
  [[nodiscard]] std::size_t lines(std::size_t begin, std::size_t end) const;

  /// Throws the DataError that names file, line, column and the field's text, and says `rule`,
  /// which it breaks: "is …".
  [[noreturn]] void refuse(std::size_t row, std::size_t column, const std::string& rule) const;
  /// What that says of the field: "column 'x': 'two' is …".
  [[nodiscard]] std::string told(std::size_t row, std::size_t column,
                                 const std::string& rule) const;
  /// What a line with so many fields is told: "it has 3 fields, but the header has 2", and perhaps
  /// why.
  [[nodiscard]] std::string told(const Ragged& line) const;

 private:
  void check_header() const;
  void check_utf8(std::string_view content) const;
  void take_header(std::size_t fields);
  void end_field(double done);  // the part of the file that is read
  void make_room(double done);
  // By its number in the table.
  [[nodiscard]] std::string_view field(std::size_t number) const {
    return std::string_view(text_).substr(ends_[number], ends_[number + 1] - ends_[number]);
  }

  std::string path_;
  std::string separator_hint_;  // if it seems to be another one
  std::vector<std::string> header_;
  std::vector<std::size_t> by_name_;  // the columns, sorted by their names without blanks
  std::size_t rows_ = 0;
  std::string text_;               // the fields of all rows, end to end
  std::vector<std::size_t> ends_;  // 0, then where each field ends in text_
  std::vector<Ragged> ragged_;
  std::size_t first_line_ = 0;  // of the first row
};

/// The number that a field is, as CsvFile::numbers() takes it; none if it is no finite number.
[[nodiscard]] std::optional<double> csv_number(std::string_view text);

/// `text` without blanks and tabs at both ends.
[[nodiscard]] std::string_view trimmed(std::string_view text);

/// Whether a text is empty, or begins or ends with what is not seen: a blank, a control character
/// or one of Unicode's spaces. Messages quote such names.
[[nodiscard]] bool has_unseen_ends(std::string_view text);

/// Names for a message, each in quotes so that blanks in them are seen: "'a', ' b'". Of many their
/// beginning, and how many bytes were left out.
[[nodiscard]] std::string quoted(const std::vector<std::string>& names);

/// The fields as one line of a CsvFile, with its end (LF). A field that needs quotes gets them.
/// ValueError for no fields, and for a zero byte, which CsvFile refuses.
[[nodiscard]] std::string csv_line(const std::vector<std::string>& fields, CsvOptions options = {});

}  // namespace lockstep::formats
