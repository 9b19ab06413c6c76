#pragma once

#include <functional>
#include <memory>

#include "framework/objectives/metric.h"

namespace lockstep::objectives {

/// What a batch adds to a mean: its targets' sum and weight.
struct WeightedSum {
  double sum = 0;
  double weight = 0;
};

/// A metric that is a mean over all targets. `of_batch` gets outputs without a graph.
struct MeanMetric {
  std::function<WeightedSum(const at::Tensor& outputs, const at::Tensor& targets)> of_batch;
  bool higher_is_better = false;
  double (*of_mean)(double mean) = [](double mean) { return mean; };  ///< what becomes of it
};
[[nodiscard]] std::shared_ptr<const Metric> make_mean_metric(MeanMetric metric);

}  // namespace lockstep::objectives
