#include "framework/objectives/top_accuracy.h"

#include <cmath>
#include <utility>

#include <ATen/ops/zeros.h>

#include "framework/base/text.h"
#include "framework/objectives/batch.h"

namespace lockstep::objectives {
namespace {

// How many classes are ahead of `target`. Comparisons with NaN are false.
template <typename T>
std::int64_t rank(const T* scores, std::int64_t classes, std::int64_t target) {
  const T own = scores[target];
  if (std::isnan(own)) return classes;
  std::int64_t ahead = 0;
  for (std::int64_t c = 0; c < target; ++c) ahead += scores[c] < own ? 0 : 1;
  for (std::int64_t c = target + 1; c < classes; ++c) ahead += scores[c] <= own ? 0 : 1;
  return ahead;
}

class TopAccuracy : public Metric {
 public:
  TopAccuracy(std::string name, std::int64_t k, std::optional<std::int64_t> ignore_index)
      : name_(std::move(name)), k_(k), ignore_index_(ignore_index) {}

  at::Tensor add(const at::Tensor& outputs, const at::Tensor& targets) const override {
    const ClassBatch batch = class_batch(name_, outputs.detach(), targets);
    require(k_ <= batch.classes(), name_, ": outputs have only ",
            counted(batch.classes(), "class", "classes"));
    return batch.scores.scalar_type() == at::kDouble ? sums_of<double>(batch)
                                                     : sums_of<float>(batch);
  }

  double value(const at::Tensor& sums) const override {
    return sums[0].item<double>() / sums[1].item<double>();
  }

  bool higher_is_better() const override { return true; }

 private:
  template <typename T>
  at::Tensor sums_of(const ClassBatch& batch) const {
    const at::Tensor scores = batch.scores.contiguous();
    const T* const rows = scores.data_ptr<T>();
    std::int64_t hits = 0;
    std::int64_t counted = 0;
    for_each_counted(name_, batch.targets, batch.classes(), ignore_index_,
                     [&](std::int64_t row, std::int64_t target) {
                       const T* const own_row = rows + row * batch.classes();
                       hits += rank(own_row, batch.classes(), target) < k_ ? 1 : 0;
                       ++counted;
                     });
    at::Tensor sums = at::zeros({2}, at::kDouble);
    sums[0] = hits;
    sums[1] = counted;
    return sums;
  }

  std::string name_;
  std::int64_t k_;
  std::optional<std::int64_t> ignore_index_;
};

}  // namespace

std::shared_ptr<const Metric> make_top_accuracy(std::string name, std::int64_t k,
                                                std::optional<std::int64_t> ignore_index) {
  return std::make_shared<TopAccuracy>(std::move(name), k, ignore_index);
}

}  // namespace lockstep::objectives
