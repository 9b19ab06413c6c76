#include "framework/data/csv_numbers.h"

#include <algorithm>
#include <array>
#include <cmath>
#include <functional>
#include <future>
#include <iterator>
#include <limits>
#include <optional>
#include <utility>

#include "framework/base/exact_sum.h"
#include "framework/base/logging.h"
#include "framework/base/number_text.h"
#include "framework/base/text.h"
#include "framework/formats/data_file.h"
#include "framework/formats/decimal.h"

namespace lockstep::data {
namespace {

using formats::Decimal;
using formats::kExactInDouble;
using formats::trimmed;

constexpr double kNoNumber = std::numeric_limits<double>::quiet_NaN();

// Of all that are not NaN. The sums are exact: the order of rows does not matter. Those of squares
// are of values that were scaled to -1 … 1, so that none is too large.
ColumnScale scale_of(std::span<const double> values) {
  std::vector<double> known;
  if (std::ranges::any_of(values, [](double value) { return std::isnan(value); })) {
    std::ranges::copy_if(values, std::back_inserter(known),
                         [](double value) { return !std::isnan(value); });
    values = known;
  }
  if (values.empty()) return {};
  const auto [least, most] = std::ranges::minmax(values);
  if (least == most) return {.mean = least, .deviation = 0};
  const auto count = static_cast<double>(values.size());
  ExactSum sum;
  for (const double value : values) sum.add(value - least);
  const double mean = least + sum.value() / count;
  const double spread = most - least;
  ExactSum squares;
  for (const double value : values) squares.add(std::pow((value - mean) / spread, 2));
  return {.mean = mean, .deviation = spread * std::sqrt(squares.value() / count)};
}

double scaled(double value, const ColumnScale& scale) {
  return scale.deviation == 0 ? 0 : (value - scale.mean) / scale.deviation;
}

// Whether float32 certainly keeps a number's digits before the point, or a constant column its one.
bool keeps_whole(double number, const ColumnScale& scale) {
  constexpr double kFloats = 4194304;  // 2^22
  return scale.deviation == 0 ||
         (std::abs(number - scale.mean) < kFloats && std::abs(number) < kExactInDouble);
}

std::optional<double> truth_of(std::string_view text) {
  for (const char* const spelling : {"True", "TRUE", "true"}) {
    if (text == spelling) return 1;
  }
  for (const char* const spelling : {"False", "FALSE", "false"}) {
    if (text == spelling) return 0;
  }
  return std::nullopt;
}

// The digits of "1,234,567" together; none where they are not in such groups.
std::optional<std::string> without_groups(std::string_view text, std::string_view separator) {
  constexpr const char* kDigits = "0123456789";
  const std::size_t begin = std::min(text.find_first_of(kDigits), text.size());
  std::string made(text.substr(0, begin));
  text.remove_prefix(begin);
  for (bool is_first = true;; is_first = false) {
    const std::size_t size = std::min(text.find_first_not_of(kDigits), text.size());
    const bool is_last = !text.substr(size).starts_with(separator);
    if (!is_first && size != 3 && (is_last || size != 2)) return std::nullopt;
    if (!is_last && (size == 0 || size > 3)) return std::nullopt;
    made += text.substr(0, size);
    text.remove_prefix(is_last ? size : size + separator.size());
    if (is_last) break;
  }
  if (text.find(separator) != std::string_view::npos) return std::nullopt;
  return made.append(text);
}

}  // namespace

NumberForm::NumberForm(const CsvSetOptions& options)
    : decimal_(options.decimal),
      thousands_(options.thousands.value_or("")),
      is_usual_(decimal_ == "." && thousands_.empty()) {}

std::string NumberForm::plain(std::string_view text) const {
  text = trimmed(text);
  if (const auto truth = truth_of(text)) return *truth > 0 ? "1" : "0";
  std::string made(text);
  if (is_usual_) return made;
  if (!thousands_.empty()) {
    const auto whole = without_groups(text, thousands_);
    if (!whole) return made + "?";  // what is no number
    made = *whole;
  }
  if (decimal_ == ".") return made;
  if (made.find('.') != std::string::npos) return made + "?";
  if (const std::size_t point = made.find(decimal_); point != std::string::npos) made[point] = '.';
  return made;
}

double NumberForm::number(std::string_view text) const {
  return formats::csv_number(plain(text)).value_or(kNoNumber);
}

std::vector<double> NumberForm::read(const TableCells& cells,
                                     std::span<const std::size_t> columns) const {
  std::vector<double> numbers(is_usual_ ? 0 : columns.size() * cells.rows(), kNoNumber);
  if (is_usual_) numbers = cells.file().numbers(columns);
  for (std::size_t i = 0; i < columns.size(); ++i) {
    for (std::size_t row = 0; row < cells.rows(); ++row) {
      double& value = numbers[i * cells.rows() + row];
      // A missing value may be a number, such as -999.
      if (cells.allows_missing() && cells.is_missing(row, columns[i])) {
        value = kNoNumber;
      } else if (std::isnan(value)) {
        value = number(cells.text(row, columns[i]));
      }
    }
  }
  return numbers;
}

void RoundedColumns::note(std::size_t row, std::size_t column, double number, double taken) {
  const bool is_moved = formats::is_moved(number, taken);
  if (!is_moved && std::abs(number) < kExactInDouble) return;
  const std::string& name = cells_.file().header()[column];
  if (!noted_.empty() && noted_.back() == name) return;
  const std::string text = form_.plain(cells_.text(row, column));
  if (formats::is_rough(text)) return;
  if (!is_moved &&
      Decimal::of(text) == Decimal::of(shortest_text(number, std::chars_format::fixed)))
    return;
  noted_.push_back(name);
  if (noted_.size() == 1) {
    first_ =
        str("line ", cells_.file().line_of(row), " has ", cut(trimmed(cells_.text(row, column))),
            ", which becomes ", shortest_text(taken, std::chars_format::fixed));
  }
}

void RoundedColumns::warn() const {
  if (noted_.empty()) return;
  log_warning(str("csv: float32 rounds numbers of '", cells_.path(), "' in ",
                  noted_.size() == 1 ? "the column " : "the columns ", formats::quoted(noted_),
                  ": ", first_));
}

std::size_t columns_together(std::size_t rows) {
  // So many at once stay in a near cache; of a long table it is one.
  constexpr std::size_t kTogether = 64;
  constexpr std::size_t kNumbersTogether = std::size_t{1} << 17;
  return std::clamp<std::size_t>(kNumbersTogether / rows, 1, kTogether);
}

NumberColumns::NumberColumns(TableCells& cells, const NumberForm& form, NumberScales scales,
                             std::size_t count, at::Tensor into, RoundedColumns& rounded,
                             OnText on_text)
    : cells_(cells),
      form_(form),
      scales_(scales),
      into_(std::move(into)),
      rounded_(rounded),
      on_text_(std::move(on_text)) {
  if (!scales_.fits) return;
  if (scales_.normalizes) {
    scales_.scales.resize(count);
  } else if (scales_.fills) {
    scales_.means.resize(count);
  }
}

void NumberColumns::read(const std::vector<NumberPlace>& places) {
  const std::size_t most = columns_together(cells_.rows());
  const auto columns_from = [&](std::size_t begin) {
    std::vector<std::size_t> columns;
    for (std::size_t i = begin; i < std::min(begin + most, places.size()); ++i) {
      columns.push_back(cells_.file().column(places[i].column));
    }
    std::vector<double> numbers = form_.read(cells_, columns);
    return std::pair(std::move(columns), std::move(numbers));
  };
  // A thread, if one can be started, reads the next columns while this one converts those before.
  const auto start = [&](std::size_t begin) {
    return std::async(std::launch::async | std::launch::deferred, columns_from, begin);
  };
  if (places.empty()) return;
  auto next = start(0);
  for (std::size_t begin = 0; begin < places.size(); begin += most) {
    const auto [columns, together] = next.get();
    if (begin + most < places.size()) next = start(begin + most);
    for (std::size_t i = 0; i < columns.size(); ++i) {
      const auto numbers = std::span(together).subspan(i * cells_.rows(), cells_.rows());
      std::string rule;
      for (std::size_t row = 0; row < numbers.size(); ++row) {
        if (!std::isnan(numbers[row]) || cells_.says_nothing(row, columns[i])) continue;
        if (rule.empty()) rule = "is no finite number" + on_text_(places[begin + i].column);
        cells_.add(row, columns[i], rule);
      }
      write(numbers, columns[i], places[begin + i]);
    }
  }
}

void NumberColumns::fit(std::span<const double> numbers, const NumberPlace& place) {
  std::vector<double> fitted;
  if (!cells_.are_all_fitted()) {
    for (std::size_t row = 0; row < numbers.size(); ++row) {
      if (cells_.is_fitted(row)) fitted.push_back(numbers[row]);
    }
    numbers = fitted;
  }
  const bool is_known =
      std::ranges::any_of(numbers, [](double number) { return !std::isnan(number); });
  if (scales_.fills && !is_known) {
    cells_.refuse_wrong(cells_.file().column(place.column));  // values that can't be read
    formats::fail_file(cells_.path(), str("the column '", cut(place.column),
                                          "' has no value in the training set, and so no mean: "
                                          "data.ignore leaves it out"));
  }
  if (scales_.normalizes) {
    scales_.scales[place.number] = scale_of(numbers);
  } else if (scales_.fills) {
    scales_.means[place.number] = scale_of(numbers).mean;
  }
}

void NumberColumns::write(std::span<const double> numbers, std::size_t column,
                          const NumberPlace& place) {
  if (scales_.fits) fit(numbers, place);
  const bool is_scaled = !scales_.scales.empty();
  const ColumnScale scale = is_scaled ? scales_.scales[place.number] : ColumnScale();
  const double mean = is_scaled || scales_.means.empty() ? scale.mean : scales_.means[place.number];
  const std::int64_t width = into_.size(1);
  float* into = into_.data_ptr<float>() + place.input;
  for (std::size_t row = 0; row < numbers.size(); ++row, into += width) {
    double number = numbers[row];
    if (std::isnan(number)) {
      const bool is_missing = cells_.allows_missing() && cells_.is_missing(row, column);
      if (!is_missing || !scales_.fills) {
        *into = is_missing ? std::numeric_limits<float>::quiet_NaN() : 0;
        continue;
      }
      number = mean;
    }
    *into = static_cast<float>(is_scaled ? scaled(number, scale) : number);
    if (!std::isfinite(*into)) {
      cells_.add(row, column, "is too large for float32");
      *into = 0;
      continue;
    }
    if (keeps_whole(number, scale)) continue;
    rounded_.note(row, column, number, *into * scale.deviation + scale.mean);
  }
}

}  // namespace lockstep::data
