#include "trainers/run/evaluation_record.h"

#include <algorithm>
#include <cmath>
#include <cstddef>
#include <limits>
#include <ranges>
#include <string>

#include <ATen/ops/log_softmax.h>
#include <ATen/ops/tensor.h>

#include "framework/base/range.h"
#include "framework/collectives/axis_index.h"
#include "framework/data/sample_text.h"
#include "framework/objectives/class_counts.h"
#include "framework/objectives/metric.h"
#include "trainers/run/picture_uri.h"
#include "trainers/run/wrong_pictures.h"

namespace lockstep {
namespace {

using Json = nlohmann::ordered_json;

constexpr std::size_t kMostWorst = 20;
constexpr std::int64_t kMostTabled = 100;  // classes: a larger table can't be read
constexpr std::size_t kMostConfused = 100;

// What replicas have gathered already.
class GatheredRows final : public Tally {
 public:
  at::Tensor add(const at::Tensor& outputs, const at::Tensor& /*targets*/) const override {
    return outputs;
  }
  bool is_of_rows() const override { return true; }
};

// The rows of all replicas, one after the other, of so many numbers each.
std::vector<double> rows_of_all(const std::vector<double>& own, std::int64_t columns,
                                const AxisNames& axis_name) {
  const at::Tensor rows = at::tensor(own, at::kDouble).view({std::ssize(own) / columns, columns});
  const at::Tensor all = of_all_replicas(GatheredRows(), rows, axis_name).contiguous();
  return {all.data_ptr<double>(), all.data_ptr<double>() + all.numel()};
}

std::int64_t whole(double number) {
  return static_cast<std::int64_t>(number);
}

// A class by its number and, if it has one, its name.
void add_class(Json& entry, const char* what, std::int64_t number,
               const std::vector<std::string>& names) {
  entry[what] = number;
  if (number < std::ssize(names)) {
    entry[std::string(what) + "_name"] = names[static_cast<std::size_t>(number)];
  }
}

}  // namespace

void EvaluationRecord::add(std::span<const std::int64_t> indices, const at::Tensor& outputs,
                           const at::Tensor& targets) {
  const SampleType type = data_.type();
  if (!type.has_label() || outputs.dim() != 2 || outputs.size(1) < type.classes) return;
  if (targets.scalar_type() != at::kLong) return;  // a program's own data may have others
  classes_ = outputs.size(1);
  const at::Tensor scores = outputs.detach().to(at::kDouble).contiguous();
  const at::Tensor losses = at::log_softmax(scores, 1).neg().contiguous();
  const at::Tensor rows = targets.contiguous();
  for (std::size_t i = 0; i < indices.size(); ++i) {
    const std::int64_t target = rows.data_ptr<std::int64_t>()[i];
    if (target < 0 || target >= classes_ || target == loss_.ignore_index()) continue;
    const auto row = static_cast<std::int64_t>(i) * classes_;
    const std::int64_t predicted =
        objectives::predicted_class(scores.data_ptr<double>() + row, classes_);
    ++counts_[{target, predicted}];
    worst_.push_back({losses.data_ptr<double>()[row + target], indices[i], target, predicted});
  }
  keep_worst(worst_);
}

// One whose loss is no number is the worst.
void EvaluationRecord::keep_worst(std::vector<Sample>& samples) {
  std::ranges::sort(samples, {}, [](const Sample& sample) {
    const bool is_number = !std::isnan(sample.loss);
    return std::pair(is_number ? -sample.loss : -std::numeric_limits<double>::infinity(),
                     sample.index);
  });
  samples.resize(std::min(samples.size(), kMostWorst));
}

EvaluationRecord::Counts EvaluationRecord::all_counts(const AxisNames& axis_name) const {
  std::vector<double> own;
  for (const auto& [classes, count] : counts_) {
    for (const std::int64_t each : {classes.first, classes.second, count}) {
      own.push_back(static_cast<double>(each));
    }
  }
  const std::vector<double> all = rows_of_all(own, 3, axis_name);
  Counts counts;
  for (std::size_t i = 0; i < all.size(); i += 3) {
    counts[{whole(all[i]), whole(all[i + 1])}] += whole(all[i + 2]);
  }
  return counts;
}

std::vector<EvaluationRecord::Sample> EvaluationRecord::all_worst(
    const AxisNames& axis_name) const {
  std::vector<double> own;
  for (const auto& [loss, index, target, predicted] : worst_) {
    own.push_back(loss);
    for (const std::int64_t each : {index, target, predicted}) {
      own.push_back(static_cast<double>(each));
    }
  }
  const std::vector<double> all = rows_of_all(own, 4, axis_name);
  std::vector<Sample> worst;
  for (std::size_t i = 0; i < all.size(); i += 4) {
    worst.push_back({all[i], whole(all[i + 1]), whole(all[i + 2]), whole(all[i + 3])});
  }
  keep_worst(worst);
  return worst;
}

Json EvaluationRecord::json(const AxisNames& axis_name) const {
  if (!data_.type().has_label()) return nullptr;
  const Counts counts = all_counts(axis_name);
  const std::vector<Sample> worst = all_worst(axis_name);
  if (counts.empty() || axis_index(axis_name) != 0) return nullptr;
  Json record = Json::object();
  add_counts(record, counts);
  record["worst"] = worst_json(worst);
  return record;
}

void EvaluationRecord::add_counts(Json& record, const Counts& counts) const {
  const std::vector<std::string> names = data_.class_names();
  if (classes_ > kMostTabled) {
    std::vector<std::pair<std::pair<std::int64_t, std::int64_t>, std::int64_t>> wrong(
        counts.begin(), counts.end());
    std::erase_if(wrong, [](const auto& each) { return each.first.first == each.first.second; });
    std::ranges::stable_sort(wrong, std::ranges::greater(),
                             [](const auto& each) { return each.second; });
    record["confused"] = Json::array();
    for (const auto& [classes, count] : wrong | std::views::take(kMostConfused)) {
      Json& entry = record["confused"].emplace_back();
      add_class(entry, "target", classes.first, names);
      if (classes.second < classes_) add_class(entry, "prediction", classes.second, names);
      entry["count"] = count;
    }
    return;
  }
  const bool has_none =
      std::ranges::any_of(counts, [&](const auto& each) { return each.first.second == classes_; });
  const auto columns = static_cast<std::size_t>(classes_ + (has_none ? 1 : 0));
  std::vector<std::vector<std::int64_t>> table(static_cast<std::size_t>(classes_),
                                               std::vector<std::int64_t>(columns));
  for (const auto& [classes, count] : counts) {
    table[static_cast<std::size_t>(classes.first)][static_cast<std::size_t>(classes.second)] =
        count;
  }
  if (!names.empty()) record["class_names"] = names;
  record["confusion"] = table;
}

Json EvaluationRecord::worst_json(const std::vector<Sample>& worst) const {
  const std::vector<std::string> names = data_.class_names();
  Json list = Json::array();
  for (const auto& [loss, index, target, predicted] : worst) {
    Json& entry = list.emplace_back(Json{{"index", index}});
    entry["sample"] = data::sample_text(data_, index);
    add_class(entry, "target", target, names);
    if (predicted < classes_) add_class(entry, "prediction", predicted, names);
    entry["loss"] = loss;
    if (are_pictures(data_.type())) entry["picture"] = picture_uri(picture_of(data_, index));
  }
  return list;
}

}  // namespace lockstep
