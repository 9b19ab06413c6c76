#include "trainers/commands/set_details.h"

#include <algorithm>
#include <cstddef>
#include <limits>
#include <memory>
#include <ranges>
#include <utility>

#include <ATen/ops/zeros.h>

#include "framework/base/text.h"
#include "framework/base/text_table.h"
#include "framework/keys/yaml_text.h"
#include "framework/objectives/built_in_metrics.h"
#include "framework/objectives/class_counts.h"
#include "framework/objectives/residuals.h"

namespace lockstep {
namespace {

using Details = nlohmann::ordered_json;
using objectives::ClassCount;

// A table of doubles of 8 MB, which each batch fills anew.
constexpr std::int64_t kMostConfused = 1000;
// As many numbers a sample are kept of all samples.
constexpr std::int64_t kMostResiduals = 100;
constexpr std::size_t kMostColumns = 100;
constexpr std::size_t kMostConfusions = 20;

const std::string kCounts = "classes";
const std::string kConfusion = "confusion";
const std::string kAuc = "auc";
const std::string kResiduals = "residuals";

// How many scores a target has. Of values none.
struct Scores {
  std::int64_t least = 0;
  std::int64_t most = 0;
};

// Counts nothing of outputs that are not one for each value, or not as many scores as it is for:
// models of a program's own may have such.
class WhereItFits : public Tally {
 public:
  WhereItFits(std::shared_ptr<const Tally> all, Scores scores)
      : all_(std::move(all)), scores_(scores) {}

  at::Tensor add(const at::Tensor& outputs, const at::Tensor& targets) const override {
    if (fits(outputs, targets)) return all_->add(outputs, targets);
    return is_of_rows() ? at::zeros({0, 1}, at::kDouble) : at::zeros({0}, at::kDouble);
  }

  bool is_of_rows() const override { return all_->is_of_rows(); }

 private:
  [[nodiscard]] bool fits(const at::Tensor& outputs, const at::Tensor& targets) const {
    if (scores_.most == 0) return outputs.sizes() == targets.sizes();
    const std::int64_t scores = outputs.dim() == targets.dim() + 1 ? outputs.size(-1) : 0;
    return scores >= scores_.least && scores <= scores_.most &&
           targets.numel() * scores == outputs.numel();
  }

  std::shared_ptr<const Tally> all_;
  Scores scores_;
};

std::int64_t whole(double count) {
  return static_cast<std::int64_t>(count);
}

Details classes_json(const std::vector<ClassCount>& counts, const std::vector<std::string>& names) {
  Details classes = Details::array();
  for (std::size_t c = 0; c < counts.size(); ++c) {
    Details& row = classes.emplace_back(Details{{"class", c}});
    if (c < names.size()) row["name"] = names[c];
    row.update({{"count", whole(counts[c].targets)},
                {"predicted", whole(counts[c].predicted)},
                {"precision", counts[c].precision()},
                {"recall", counts[c].recall()},
                {"f1", counts[c].f1()}});
  }
  return classes;
}

Details averages_json(const std::vector<ClassCount>& counts, objectives::ClassWeight weight) {
  return {{"precision", objectives::class_mean(counts, &ClassCount::precision, weight)},
          {"recall", objectives::class_mean(counts, &ClassCount::recall, weight)},
          {"f1", objectives::class_mean(counts, &ClassCount::f1, weight)}};
}

void add_confusion(Details& details, const at::Tensor& sums, std::size_t classes) {
  const auto* cell = sums.data_ptr<double>();
  Details rows = Details::array();
  Details without = Details::array();
  bool is_one_without = false;
  for (std::size_t target = 0; target < classes; ++target) {
    Details& row = rows.emplace_back(Details::array());
    for (std::size_t predicted = 0; predicted < classes; ++predicted) row.push_back(whole(*cell++));
    is_one_without = is_one_without || *cell > 0;
    without.push_back(whole(*cell++));
  }
  details[kConfusion] = std::move(rows);
  if (is_one_without) details["without_prediction"] = std::move(without);
}

// What a class or an output is called in tables, whose lines are to stay whole.
std::string label_of(const Details& row, const std::string& number) {
  if (!row.contains("name")) return row[number].dump();
  const std::string name = row["name"].get<std::string>();
  const bool is_plain =
      std::ranges::all_of(name, [](char letter) { return keys::control_code(letter).empty(); });
  return is_plain ? name : keys::yaml_shown(name);
}

std::vector<std::string> score_cells(const Details& scores) {
  std::vector<std::string> cells;
  for (const char* const score : {"precision", "recall", "f1"}) {
    cells.push_back(formatted("%.4f", scores[score].get<double>()));
  }
  return cells;
}

TextTable class_table(const Details& details) {
  TextTable table{{"class", "count", "precision", "recall", "f1"}};
  std::int64_t total = 0;
  const auto add = [&](const std::string& label, std::int64_t count, const Details& scores) {
    auto& row = table.emplace_back(std::vector{label, str(count)});
    for (std::string& cell : score_cells(scores)) row.push_back(std::move(cell));
  };
  for (const Details& row : details[kCounts]) {
    add(label_of(row, "class"), row["count"].get<std::int64_t>(), row);
    total += row["count"].get<std::int64_t>();
  }
  for (const auto& [name, scores] : details["averages"].items()) {
    add(name + " average", total, scores);
  }
  return table;
}

TextTable confusion_table(const Details& details) {
  TextTable table{{""}};
  const bool has_none = details.contains("without_prediction");
  for (std::size_t c = 0; c < details[kConfusion].size(); ++c) {
    const Details& named = details[kCounts][c];
    table[0].push_back(str(c));
    auto& row = table.emplace_back(
        std::vector{named.contains("name") ? str(c, " ", label_of(named, "class")) : str(c)});
    for (const Details& count : details[kConfusion][c]) row.push_back(count.dump());
    if (has_none) row.push_back(details["without_prediction"][c].dump());
  }
  if (has_none) table[0].emplace_back("none");
  return table;
}

// The largest ones, with their targets and predictions.
TextTable confusion_list(const Details& details) {
  struct Confused {
    std::int64_t count;
    std::size_t target, predicted;
  };
  std::vector<Confused> confusions;
  const Details& confusion = details[kConfusion];
  for (std::size_t target = 0; target < confusion.size(); ++target) {
    for (std::size_t predicted = 0; predicted < confusion.size(); ++predicted) {
      const auto count = confusion[target][predicted].get<std::int64_t>();
      if (target != predicted && count > 0) confusions.push_back({count, target, predicted});
    }
  }
  std::ranges::stable_sort(confusions, std::ranges::greater(), &Confused::count);
  TextTable table{{"target", "prediction", "count"}};
  for (const auto& [count, target, predicted] : confusions | std::views::take(kMostConfusions)) {
    table.push_back({label_of(details[kCounts][target], "class"),
                     label_of(details[kCounts][predicted], "class"), str(count)});
  }
  return table;
}

std::string confusion_text(const std::string& begin, const Details& details) {
  const std::string table = table_text(confusion_table(details), "lr", "  ");
  if (table.find('\n') <= kMostColumns) {
    return str("\n", begin, "targets (rows) and what was predicted (columns):\n", table);
  }
  return str("\n", begin, "the largest confusions:\n",
             table_text(confusion_list(details), "llr", "  "));
}

}  // namespace

SetDetails::SetDetails(const SampleType& sample, const Fitted& fitted,
                       std::optional<std::int64_t> ignored)
    : fitted_(fitted) {
  if (sample.has_tokens()) return;
  const auto add = [&](const std::string& name, std::shared_ptr<const Tally> all,
                       std::int64_t most) {
    tallies_.emplace_back(
        name, std::make_shared<WhereItFits>(std::move(all), Scores{sample.classes, most}));
  };
  if (sample.classes == 0) {
    if (sample.target.values() <= kMostResiduals) add(kResiduals, objectives::make_residuals(), 0);
    return;
  }
  add(kCounts, objectives::make_class_counts(kCounts, ignored),
      std::numeric_limits<std::int64_t>::max());
  if (sample.classes <= kMostConfused) {
    add(kConfusion, objectives::make_confusion(ignored), kMostConfused);
  }
  if (sample.classes == 2 && sample.has_label()) add(kAuc, objectives::make_auc(ignored), 2);
}

Details SetDetails::json(const std::vector<at::Tensor>& totals,
                         const std::vector<std::string>& class_names) const {
  Details details = Details::object();
  for (std::size_t i = 0; i < tallies_.size(); ++i) {
    const std::string& name = tallies_[i].first;
    const at::Tensor& total = totals[i];
    if (total.numel() == 0) continue;
    if (name == kResiduals) details[name] = residuals(total);
    if (name == kConfusion) add_confusion(details, total, details[kCounts].size());
    if (name == kAuc) details[name] = objectives::make_auc(std::nullopt)->value(total);
    if (name != kCounts) continue;
    const std::vector<ClassCount> counts = objectives::class_counts(total);
    details[name] = classes_json(counts, class_names);
    details["averages"] = {{"macro", averages_json(counts, objectives::macro_weight)},
                           {"weighted", averages_json(counts, objectives::weighted_weight)}};
  }
  return details;
}

Details SetDetails::residuals(const at::Tensor& rows) const {
  const std::vector<std::pair<std::string, double>> parts{
      {"0", 0}, {"5", 0.05}, {"25", 0.25}, {"50", 0.5}, {"75", 0.75}, {"95", 0.95}, {"100", 1}};
  const auto outputs = static_cast<std::size_t>(rows.size(1));
  Details all = Details::array();
  for (std::size_t output = 0; output < outputs; ++output) {
    Details& row = all.emplace_back(Details{{"output", output}});
    if (fitted_.targets.size() == outputs) row["name"] = fitted_.targets[output];
    const auto values =
        objectives::quantiles(rows.select(1, static_cast<std::int64_t>(output)),
                              mapped(parts, [](const auto& part) { return part.second; }));
    for (std::size_t i = 0; i < parts.size(); ++i) {
      row["quantiles"][parts[i].first] = values[i];
    }
  }
  return all;
}

std::string details_text(const std::string& set, const Details& details) {
  const std::string begin = set + " set, ";
  std::string text;
  if (details.contains(kCounts)) {
    text += str("\n", begin, "class by class:\n", table_text(class_table(details), "lr", "  "));
  }
  if (details.contains(kConfusion)) text += confusion_text(begin, details);
  if (details.contains(kAuc)) text += str("\n", begin, "auc ", details[kAuc].get<double>(), "\n");
  if (!details.contains(kResiduals)) return text;
  TextTable table{{"output"}};
  for (const Details& row : details[kResiduals]) {
    auto& cells = table.emplace_back(std::vector{label_of(row, "output")});
    for (const auto& [percent, value] : row["quantiles"].items()) {
      if (table.size() == 2) table[0].push_back(percent + " %");
      cells.push_back(str(value.get<double>()));
    }
  }
  return text +
         str("\n", begin, "quantiles of target - prediction:\n", table_text(table, "lr", "  "));
}

}  // namespace lockstep
