#include "framework/data/csv_names.h"

#include <algorithm>
#include <set>
#include <utility>

#include <ATen/ops/empty.h>

#include "framework/base/logging.h"
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
  std::set<std::pair<std::optional<Decimal>, std::string_view>> texts;
  for (std::size_t row = 0; row < cells.rows(); ++row) {
    const std::string_view text = trimmed(cells.text(row, column));
    if (text.empty() || is_ignored(text, no_name) || !counts(row) ||
        cells.says_nothing(row, column)) {
      continue;
    }
    texts.emplace(is_numeric ? Decimal::of(text) : std::nullopt, text);
  }
  return mapped(texts, [](const auto& entry) { return std::string(entry.second); });
}

NameTable::NameTable(const std::vector<std::string>& names)
    : names_(names), is_numeric_(std::ranges::all_of(names, [](const std::string& name) {
        return formats::csv_number(name).has_value();
      })) {
  for (std::size_t i = 0; i < names.size(); ++i) {
    const auto number = static_cast<std::int64_t>(i);
    by_text_.emplace(names[i], number);
    by_trimmed_.emplace(trimmed(names[i]), number);
    if (!is_numeric_) continue;
    const auto [same, is_new] = by_number_.emplace(*Decimal::of(names[i]), number);
    if (!is_new) same->second = -1;
  }
}

std::int64_t NameTable::find(std::string_view text) {
  if (const auto same = by_text_.find(text); same != by_text_.end()) return same->second;
  const auto same = by_trimmed_.find(trimmed(text));
  if (same != by_trimmed_.end()) return same->second;
  const auto number = is_numeric_ ? Decimal::of(text) : std::nullopt;
  const auto found = number ? by_number_.find(*number) : by_number_.end();
  if (found == by_number_.end() || found->second < 0) return -1;
  constexpr std::size_t kMost = 100;
  if (merged_.size() < kMost) merged_.emplace(trimmed(text), found->second);
  return found->second;
}

void NameTable::tell_merged(const TableCells& cells, const std::string& column) const {
  if (merged_.empty()) return;
  const auto texts = mapped(merged_, [&](const auto& each) {
    return str("'", cut(each.first), "' as '", cut(names_[static_cast<std::size_t>(each.second)]),
               "'");
  });
  log_info(str("csv: column '", cut(column), "' of '", cells.path(),
               "' has numbers that the training set writes in another way: ", listed(texts, 5)));
}

at::Tensor labels_of(TableCells& cells, const std::string& column,
                     const std::vector<std::string>& names,
                     const std::optional<std::int64_t>& ignored) {
  NameTable classes(names);
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
  classes.tell_merged(cells, column);
  return labels;
}

}  // namespace lockstep::data
