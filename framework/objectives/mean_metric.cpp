#include "framework/objectives/mean_metric.h"

#include <utility>

#include <ATen/ops/tensor.h>
#include <c10/core/GradMode.h>

namespace lockstep::objectives {
namespace {

// Sums: that of the targets, and of their weights.
class Mean : public Metric {
 public:
  explicit Mean(MeanMetric metric) : metric_(std::move(metric)) {}

  at::Tensor add(const at::Tensor& outputs, const at::Tensor& targets) const override {
    const c10::AutoGradMode no_grad(false);
    const auto [sum, weight] = metric_.of_batch(outputs, targets);
    return at::tensor({sum, weight}, at::kDouble);
  }

  double value(const at::Tensor& sums) const override {
    return metric_.of_mean(sums[0].item<double>() / sums[1].item<double>());
  }

  bool higher_is_better() const override { return metric_.higher_is_better; }

 private:
  MeanMetric metric_;
};

}  // namespace

std::shared_ptr<const Metric> make_mean_metric(MeanMetric metric) {
  return std::make_shared<Mean>(std::move(metric));
}

}  // namespace lockstep::objectives
