#include "framework/objectives/class_counts.h"

#include <cstddef>
#include <limits>
#include <utility>

#include <ATen/ops/zeros.h>

#include "framework/objectives/batch.h"

namespace lockstep::objectives {
namespace {

// Calls visit(target, predicted) for each target that counts.
template <typename T, typename Visit>
void for_each_prediction(std::string_view user, const ClassBatch& batch,
                         std::optional<std::int64_t> ignore_index, const Visit& visit) {
  const at::Tensor scores = batch.scores.contiguous();
  const T* const rows = scores.data_ptr<T>();
  for_each_counted(user, batch.targets, batch.classes(), ignore_index,
                   [&](std::int64_t row, std::int64_t target) {
                     visit(target, predicted_class(rows + row * batch.classes(), batch.classes()));
                   });
}

template <typename Visit>
void visit_predictions(std::string_view user, const ClassBatch& batch,
                       std::optional<std::int64_t> ignore_index, const Visit& visit) {
  if (batch.scores.scalar_type() == at::kDouble) {
    return for_each_prediction<double>(user, batch, ignore_index, visit);
  }
  for_each_prediction<float>(user, batch, ignore_index, visit);
}

class ClassCounts : public Tally {
 public:
  ClassCounts(std::string name, std::optional<std::int64_t> ignore_index)
      : name_(std::move(name)), ignore_index_(ignore_index) {}

  at::Tensor add(const at::Tensor& outputs, const at::Tensor& targets) const override {
    const ClassBatch batch = class_batch(name_, outputs, targets);
    const std::int64_t classes = batch.classes();
    at::Tensor sums = at::zeros({3 * classes}, at::kDouble);
    auto* const cells = sums.data_ptr<double>();
    visit_predictions(name_, batch, ignore_index_,
                      [&](std::int64_t target, std::int64_t predicted) {
                        ++cells[target];
                        if (predicted < classes) ++cells[classes + predicted];
                        if (predicted == target) ++cells[2 * classes + target];
                      });
    return sums;
  }

 private:
  std::string name_;
  std::optional<std::int64_t> ignore_index_;
};

class ClassScoreMetric : public Metric {
 public:
  ClassScoreMetric(std::string name, std::optional<std::int64_t> ignore_index, ClassScore score,
                   ClassWeight weight, bool is_of_class_1)
      : counts_(std::move(name), ignore_index),
        score_(score),
        weight_(weight),
        is_of_class_1_(is_of_class_1) {}

  at::Tensor add(const at::Tensor& outputs, const at::Tensor& targets) const override {
    return counts_.add(outputs, targets);
  }

  double value(const at::Tensor& sums) const override {
    const std::vector<ClassCount> counts = class_counts(sums);
    if (!is_of_class_1_ || counts.size() != 2) return class_mean(counts, score_, weight_);
    const bool is_counted = counts[0].targets + counts[1].targets > 0;
    return is_counted ? (counts[1].*score_)() : std::numeric_limits<double>::quiet_NaN();
  }

  bool higher_is_better() const override { return true; }

 private:
  ClassCounts counts_;
  ClassScore score_;
  ClassWeight weight_;
  bool is_of_class_1_;
};

class Confusion : public Tally {
 public:
  explicit Confusion(std::optional<std::int64_t> ignore_index) : ignore_index_(ignore_index) {}

  at::Tensor add(const at::Tensor& outputs, const at::Tensor& targets) const override {
    const ClassBatch batch = class_batch("confusion", outputs, targets);
    const std::int64_t columns = batch.classes() + 1;
    at::Tensor sums = at::zeros({batch.classes() * columns}, at::kDouble);
    auto* const cells = sums.data_ptr<double>();
    visit_predictions("confusion", batch, ignore_index_,
                      [&](std::int64_t target, std::int64_t predicted) {
                        ++cells[target * columns + predicted];
                      });
    return sums;
  }

 private:
  std::optional<std::int64_t> ignore_index_;
};

}  // namespace

std::shared_ptr<const Tally> make_class_counts(std::string name,
                                               std::optional<std::int64_t> ignore_index) {
  return std::make_shared<ClassCounts>(std::move(name), ignore_index);
}

std::vector<ClassCount> class_counts(const at::Tensor& sums) {
  const at::Tensor table = sums.view({3, sums.numel() / 3});
  const auto cells = table.accessor<double, 2>();
  std::vector<ClassCount> counts;
  for (std::int64_t c = 0; c < table.size(1); ++c) {
    counts.push_back({cells[0][c], cells[1][c], cells[2][c]});
  }
  return counts;
}

double macro_weight(const ClassCount& count) {
  return count.targets + count.predicted > 0 ? 1 : 0;
}

double weighted_weight(const ClassCount& count) {
  return count.targets;
}

double recalled_weight(const ClassCount& count) {
  return count.targets > 0 ? 1 : 0;
}

double class_mean(const std::vector<ClassCount>& counts, ClassScore score, ClassWeight weight) {
  double total = 0;
  double weights = 0;
  for (const ClassCount& count : counts) {
    total += weight(count) * (count.*score)();
    weights += weight(count);
  }
  return weights > 0 ? total / weights : std::numeric_limits<double>::quiet_NaN();
}

std::shared_ptr<const Metric> make_class_score(std::string name,
                                               std::optional<std::int64_t> ignore_index,
                                               ClassScore score, ClassWeight weight,
                                               bool is_of_class_1) {
  return std::make_shared<ClassScoreMetric>(std::move(name), ignore_index, score, weight,
                                            is_of_class_1);
}

std::shared_ptr<const Tally> make_confusion(std::optional<std::int64_t> ignore_index) {
  return std::make_shared<Confusion>(ignore_index);
}

}  // namespace lockstep::objectives
