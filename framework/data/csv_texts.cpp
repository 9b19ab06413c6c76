#include "framework/data/csv_texts.h"

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <iterator>
#include <set>
#include <string_view>
#include <tuple>

#include "framework/base/logging.h"
#include "framework/base/text.h"
#include "framework/data/csv_dates.h"
#include "framework/formats/data_file.h"
#include "framework/keys/yaml_text.h"

namespace lockstep::data {
namespace {

using keys::yaml_text;
using Names = std::vector<std::string>;

// Whole, so that it can be pasted, but for tables of a hundred columns.
std::string yaml_list(const Names& names) {
  return str("[",
             shortened(join(mapped(names, [](const auto& name) { return yaml_text(name); })), 2000),
             "]");
}

// What a key is to be: what it is, and these.
std::string yaml_list(Names known, const Names& more) {
  for (const std::string& name : more) {
    if (std::ranges::count(known, name) == 0) known.push_back(name);
  }
  return yaml_list(known);
}

// A cell without what accounts write around numbers: "$ (1,200)" is 1,200.
std::string without_signs(std::string text) {
  for (const char* const sign : {"$", "\xe2\x82\xac", "\xc2\xa3", "\xc2\xa5", "%", "(", ")",
                                 "\xe2\x88\x92", "\xc2\xa0", " "}) {
    for (auto at = text.find(sign); at != std::string::npos; at = text.find(sign)) {
      text.erase(at, std::string_view(sign).size());
    }
  }
  return text;
}

// What the cells of a column would be numbers with, if anything makes them all numbers.
std::string number_hint(const Names& texts) {
  const std::string usual = "data.decimal: '.'";
  const std::vector<std::tuple<std::string, std::string, std::string>> forms{
      {".", "", usual},
      {",", "", "data.decimal: ','"},
      {".", ",", "data.thousands: ','"},
      {",", ".", "data.decimal: ',' and data.thousands: '.'"},
      {".", " ", "data.thousands: ' '"},
      {",", " ", "data.decimal: ',' and data.thousands: ' '"},
      {".", "'", "data.thousands: \"'\""}};
  const auto found = [&](const Names& numbers) {
    Names hints;  // 1,234 may have groups of digits or a fraction
    for (const auto& [decimal, thousands, words] : forms) {
      const bool has_both = decimal != "." && !thousands.empty();
      if (has_both && !hints.empty()) continue;
      CsvSetOptions options{.decimal = decimal};
      if (!thousands.empty()) options.thousands = thousands;
      const NumberForm form(options);
      if (std::ranges::none_of(
              numbers, [&](const std::string& text) { return std::isnan(form.number(text)); })) {
        if (decimal == "." && thousands.empty()) return Names{words};
        hints.emplace_back(words);
      }
    }
    return hints;
  };
  if (const Names hints = found(texts); !hints.empty()) return str("with ", join(hints, " or "));
  const Names hints = found(mapped(texts, without_signs));
  if (hints.empty()) return "";
  return str("once the signs around it are taken out of the file",
             hints[0] == usual ? "" : str(", with ", join(hints, " or ")));
}

// How the dates are written, if all of these are dates.
std::string date_format_of(const Names& texts) {
  for (const std::string& format :
       Names{kIsoDates, "%d.%m.%Y", "%m/%d/%Y", "%d/%m/%Y", "%Y/%m/%d", "%d-%m-%Y"}) {
    if (std::ranges::all_of(
            texts, [&](const auto& text) { return moment_of(text, format).has_value(); })) {
      return format;
    }
  }
  return "";
}

// The few short texts that stand among numbers, as "unknown" and "-" do.
Names words_among(const Names& texts, std::size_t seen) {
  constexpr std::size_t kMostWords = 3;
  constexpr std::size_t kLongest = 20;
  std::set<std::string_view> words;
  for (const std::string& text : texts) {
    const std::string_view word = *words.insert(formats::trimmed(text)).first;
    if (words.size() > kMostWords || word.size() > kLongest) return {};
  }
  return texts.size() == seen ? Names() : Names(words.begin(), words.end());
}

// What to write, if what stands among numbers may mean that there is none.
std::string missing_advice(const std::vector<TextColumn>& texts, const CsvSetOptions& options) {
  Names words;
  for (const TextColumn& text : texts) std::ranges::copy(text.words, std::back_inserter(words));
  if (words.empty()) return "";
  const bool are_errors = options.missing == CsvMissing::error;
  return str("; data.missing_values: ", yaml_list(options.missing_values, words),
             " counts such as missing",
             are_errors ? ", which data.missing: mean fills and drop leaves out" : "");
}

}  // namespace

std::optional<TextColumn> text_column(const TableCells& cells, const NumberForm& form,
                                      const std::string& name, std::size_t most) {
  const std::size_t column = cells.file().column(name);
  TextColumn found{.name = name};
  Names others;
  for (std::size_t row = 0; row < cells.rows() && found.seen < most; ++row) {
    if (cells.says_nothing(row, column)) continue;
    const std::string_view text = cells.text(row, column);
    ++found.seen;
    if (!std::isnan(form.number(text)) || formats::trimmed(text).empty()) continue;
    if (others.empty()) found.row = row;
    others.emplace_back(text);
  }
  if (others.empty()) return std::nullopt;
  found.count = others.size();
  found.has_dates = std::ranges::all_of(
      others, [](const auto& text) { return moment_of(text, kIsoDates).has_value(); });
  if (found.has_dates) return found;
  found.hint = number_hint(others);
  if (found.hint.empty()) found.date_format = date_format_of(others);
  if (found.hint.empty()) found.words = words_among(others, found.seen);
  return found;
}

std::string date_format_of(const TableCells& cells, std::size_t column) {
  Names texts;
  for (std::size_t row = 0; row < cells.rows(); ++row) {
    if (!cells.says_nothing(row, column)) texts.emplace_back(cells.text(row, column));
  }
  return date_format_of(texts);
}

std::string shown(const TableCells& cells, const TextColumn& text) {
  const formats::CsvFile& file = cells.file();
  return str("'", cut(text.name), "' (line ", file.line_of(text.row), ": '",
             cut(cells.text(text.row, file.column(text.name))), "'",
             text.has_dates || !text.date_format.empty() ? ", a date"
             : text.hint.empty()                         ? ""
                                                         : ", a number " + text.hint,
             text.count < text.seen ? str("; ", text.count, " of ", text.seen, " values") : "",
             ")");
}

std::string told_of_text(const TableCells& cells, const NumberForm& form, const std::string& column,
                         const CsvSetOptions& options) {
  const auto text = text_column(cells, form, column);
  if (!text) return "";
  const std::string advice = missing_advice({*text}, options);
  if (!cells.keeps_damaged()) {
    return str(text->count == 1 ? "" : str(", as are ", text->count, " of ", text->seen, " values"),
               text->hint.empty() ? "" : "; it is a number " + text->hint, advice);
  }
  log_warning(str("csv: '", cells.path(), "': ", shown(cells, *text), " is to be numbers", advice));
  return "";
}

void refuse_texts(const TableCells& cells, const NumberForm& form, const Names& inputs,
                  const std::vector<ColumnForm>& forms, const CsvSetOptions& options) {
  constexpr std::size_t kMostShown = 10;
  std::vector<TextColumn> texts;
  Names places, names, dates;
  Names categories = options.categories;
  std::string format;  // of dates
  bool has_texts = false;
  for (std::size_t i = 0; i < inputs.size(); ++i) {
    const bool is_number = forms.empty() || forms[i] == ColumnForm();
    const bool is_found = options.finds_categories && !is_number && !forms[i].categories.empty();
    if (is_found && std::ranges::count(categories, inputs[i]) == 0) categories.push_back(inputs[i]);
    auto text = is_number ? text_column(cells, form, inputs[i]) : std::nullopt;
    if (!text) continue;
    if (places.size() < kMostShown) places.push_back(shown(cells, *text));
    names.push_back(text->name);
    if (text->has_dates || !text->date_format.empty()) dates.push_back(text->name);
    if (format.empty()) format = text->date_format;
    has_texts |= text->is_text() && !text->has_dates;
    texts.push_back(*std::move(text));
  }
  if (texts.empty()) return;
  std::string all = join(places);
  if (texts.size() > kMostShown) all += str(" and ", texts.size() - kMostShown, " more");
  formats::fail_file(
      cells.path(),
      str(texts.size(), " of ", counted(std::ssize(inputs), "input column"),
          texts.size() == 1 ? " has" : " have", " cells that are no numbers: ", all,
          "; data.ignore: ", yaml_list(options.ignore, names), " leaves ",
          names.size() == 1 ? "it" : "them", " out, data.categories: ",
          yaml_list(categories, names), " makes an input of each different text",
          has_texts && !options.finds_categories ? " (auto: for all columns of text)" : "",
          dates.empty() ? ""
                        : str(", data.dates: ", yaml_list(options.dates, dates),
                              format.empty() ? "" : " with data.date_format: " + yaml_text(format),
                              " makes numbers of dates"),
          missing_advice(texts, options)));
}

}  // namespace lockstep::data
