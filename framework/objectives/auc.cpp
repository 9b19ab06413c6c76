#include <algorithm>
#include <cmath>
#include <limits>
#include <utility>
#include <vector>

#include <ATen/ops/empty.h>

#include "framework/base/text.h"
#include "framework/objectives/batch.h"
#include "framework/objectives/built_in_metrics.h"

namespace lockstep::objectives {
namespace {

// By how much output 1 is the larger, and whether the target is class 1.
using Ranked = std::pair<double, bool>;

class Auc : public Metric {
 public:
  explicit Auc(std::optional<std::int64_t> ignore_index) : ignore_index_(ignore_index) {}

  at::Tensor add(const at::Tensor& outputs, const at::Tensor& targets) const override {
    const ClassBatch batch = class_batch("auc", outputs, targets);
    require(batch.classes() == 2, "auc: is for two classes, but outputs have ", batch.classes(),
            "; f1, precision and recall are for any number of them");
    const at::Tensor scores = batch.scores.detach().to(at::kDouble);
    const auto of_class = scores.accessor<double, 2>();
    at::Tensor rows = at::empty({batch.targets.numel(), 2}, at::kDouble);
    auto* cells = rows.data_ptr<double>();
    std::int64_t count = 0;
    for_each_counted("auc", batch.targets, 2, ignore_index_,
                     [&](std::int64_t row, std::int64_t target) {
                       *cells++ = of_class[row][1] - of_class[row][0];
                       *cells++ = static_cast<double>(target);
                       ++count;
                     });
    return rows.narrow(0, 0, count);
  }

  bool is_of_rows() const override { return true; }

  // Of the pairs of a target of each class, those in which class 1's score is the larger, and half
  // of those with equal ones. Whole numbers: the order of the rows leaves no trace.
  double value(const at::Tensor& rows) const override {
    const auto cells = rows.accessor<double, 2>();
    std::vector<Ranked> ranked;
    for (std::int64_t row = 0; row < rows.size(0); ++row) {
      if (std::isnan(cells[row][0])) return std::numeric_limits<double>::quiet_NaN();
      ranked.emplace_back(cells[row][0], cells[row][1] == 1);
    }
    std::ranges::sort(ranked, {}, &Ranked::first);
    std::int64_t ones = 0;
    std::int64_t zeros = 0;
    std::int64_t twice = 0;
    for (auto begin = ranked.begin(); begin != ranked.end();) {
      const auto end = std::find_if(
          begin, ranked.end(), [&](const Ranked& other) { return other.first != begin->first; });
      const std::int64_t equal_ones =
          std::count_if(begin, end, [](const Ranked& r) { return r.second; });
      const std::int64_t equal_zeros = end - begin - equal_ones;
      twice += equal_ones * (2 * zeros + equal_zeros);
      ones += equal_ones;
      zeros += equal_zeros;
      begin = end;
    }
    // 0 / 0 has a sign, which people would read.
    if (ones == 0 || zeros == 0) return std::numeric_limits<double>::quiet_NaN();
    return static_cast<double>(twice) /
           (2 * static_cast<double>(ones) * static_cast<double>(zeros));
  }

  bool higher_is_better() const override { return true; }

 private:
  std::optional<std::int64_t> ignore_index_;
};

}  // namespace

std::shared_ptr<const Metric> make_auc(std::optional<std::int64_t> ignore_index) {
  return std::make_shared<Auc>(ignore_index);
}

}  // namespace lockstep::objectives
