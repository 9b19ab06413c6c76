#include "framework/data/csv_names.h"

#include <algorithm>
#include <set>

#include <ATen/ops/empty.h>

#include "framework/base/range.h"
#include "framework/base/text.h"

namespace lockstep::data {
namespace {

using formats::Decimal;
using formats::trimmed;

// A label that is no class and does not count, as numbers are told apart.
std::optional<Decimal> ignored_label(const std::optional<std::int64_t>& ignored) {
  return ignored && *ignored < 0 ? Decimal::of(str(*ignored)) : std::nullopt;
}

bool is_ignored(std::string_view text, const std::optional<Decimal>& ignored) {
  return ignored && Decimal::of(text) == ignored;
}

}  // namespace

std::vector<std::string> names_of(const TableCells& cells, std::size_t column,
                                  const std::function<bool(std::size_t row)>& counts,
                                  const std::optional<std::int64_t>& ignored) {
  const auto no_name = ignored_label(ignored);
  bool is_numeric = true;
  for (std::size_t row = 0; row < cells.rows() && is_numeric; ++row) {
    is_numeric = formats::csv_number(cells.text(row, column)) || !counts(row) ||
                 cells.says_nothing(row, column);
  }
  std::map<Decimal, std::string> by_number;
  std::set<std::string_view> texts;
  for (std::size_t row = 0; row < cells.rows(); ++row) {
    const std::string_view text = trimmed(cells.text(row, column));
    if (text.empty() || is_ignored(text, no_name) || !counts(row) ||
        cells.says_nothing(row, column)) {
      continue;
    }
    if (is_numeric) {
      by_number.emplace(*Decimal::of(text), text);
    } else {
      texts.insert(text);
    }
  }
  if (!is_numeric) return {texts.begin(), texts.end()};
  return mapped(by_number, [](const auto& entry) { return entry.second; });
}

NameTable::NameTable(const std::vector<std::string>& names)
    : is_numeric_(std::ranges::all_of(
          names, [](const std::string& name) { return formats::csv_number(name).has_value(); })) {
  for (std::size_t i = 0; i < names.size(); ++i) {
    const auto number = static_cast<std::int64_t>(i);
    if (is_numeric_) {
      by_number_.emplace(*Decimal::of(names[i]), number);
    } else {
      by_text_.emplace(names[i], number);
      by_trimmed_.emplace(trimmed(names[i]), number);
    }
  }
}

std::int64_t NameTable::find(std::string_view text) const {
  if (is_numeric_) {
    const auto number = Decimal::of(text);
    const auto found = number ? by_number_.find(*number) : by_number_.end();
    return found == by_number_.end() ? -1 : found->second;
  }
  if (const auto same = by_text_.find(text); same != by_text_.end()) return same->second;
  const auto found = by_trimmed_.find(trimmed(text));
  return found == by_trimmed_.end() ? -1 : found->second;
}

at::Tensor labels_of(TableCells& cells, const std::string& column,
                     const std::vector<std::string>& names,
                     const std::optional<std::int64_t>& ignored) {
  const NameTable classes(names);
  const auto no_class = ignored_label(ignored);
  const std::size_t place = cells.file().column(column);
  std::string rule;
  at::Tensor labels = at::empty({static_cast<std::int64_t>(cells.rows())}, at::kLong);
  auto* into = labels.data_ptr<std::int64_t>();
  for (std::size_t row = 0; row < cells.rows(); ++row) {
    const std::string_view text = cells.text(row, place);
    std::int64_t label = classes.find(text);
    if (label < 0 && is_ignored(text, no_class)) {
      label = *ignored;
    } else if (label < 0) {
      if (rule.empty()) {
        rule =
            str("is none of the training file's classes: ", shortened(formats::quoted(names), 200));
      }
      const bool is_odd = classes.is_numeric() && !formats::csv_number(text);
      cells.add(row, place,
                is_odd                  ? "is no finite number"
                : trimmed(text).empty() ? "is no class"
                                        : rule);
    }
    *into++ = label;
  }
  return labels;
}

}  // namespace lockstep::data
