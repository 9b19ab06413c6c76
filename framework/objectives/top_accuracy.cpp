#include <cmath>
#include <utility>

#include "framework/base/text.h"
#include "framework/objectives/batch.h"
#include "framework/objectives/built_in_metrics.h"
#include "framework/objectives/mean_metric.h"

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

template <typename T>
WeightedSum hits(const std::string& name, std::int64_t k, std::optional<std::int64_t> ignore_index,
                 const ClassBatch& batch) {
  const at::Tensor scores = batch.scores.contiguous();
  const T* const rows = scores.data_ptr<T>();
  std::int64_t hits = 0;
  std::int64_t counted = 0;
  for_each_counted(name, batch.targets, batch.classes(), ignore_index,
                   [&](std::int64_t row, std::int64_t target) {
                     const T* const own_row = rows + row * batch.classes();
                     hits += rank(own_row, batch.classes(), target) < k ? 1 : 0;
                     ++counted;
                   });
  return {static_cast<double>(hits), static_cast<double>(counted)};
}

}  // namespace

std::shared_ptr<const Metric> make_top_accuracy(std::string name, std::int64_t k,
                                                std::optional<std::int64_t> ignore_index) {
  const auto of_batch = [name = std::move(name), k, ignore_index](const at::Tensor& outputs,
                                                                  const at::Tensor& targets) {
    const ClassBatch batch = class_batch(name, outputs, targets);
    require(k <= batch.classes(), name, ": outputs have only ",
            counted(batch.classes(), "class", "classes"));
    return (batch.scores.scalar_type() == at::kDouble ? hits<double>
                                                      : hits<float>)(name, k, ignore_index, batch);
  };
  return make_mean_metric({.of_batch = of_batch, .higher_is_better = true});
}

}  // namespace lockstep::objectives
