#include "framework/objectives/loss_metric.h"

#include <utility>

#include <ATen/ops/zeros.h>
#include <c10/core/GradMode.h>

namespace lockstep::objectives {
namespace {

class LossMetric : public Metric {
 public:
  LossMetric(std::shared_ptr<const Loss> loss, double (*of_mean)(double))
      : loss_(std::move(loss)), of_mean_(of_mean) {}

  at::Tensor add(const at::Tensor& outputs, const at::Tensor& targets) const override {
    const c10::AutoGradMode no_grad(false);
    at::Tensor sums = at::zeros({2}, at::kDouble);
    if (targets.numel() == 0) return sums;
    const double mean = loss_->mean(outputs, targets).item<double>();
    const double weight = loss_->weight(targets);
    sums[0] = mean * weight;
    sums[1] = weight;
    return sums;
  }

  double value(const at::Tensor& sums) const override {
    return of_mean_(sums[0].item<double>() / sums[1].item<double>());
  }

  bool higher_is_better() const override { return false; }

 private:
  std::shared_ptr<const Loss> loss_;
  double (*of_mean_)(double);
};

}  // namespace

std::shared_ptr<const Metric> make_loss_metric(std::shared_ptr<const Loss> loss,
                                               double (*of_mean)(double)) {
  return std::make_shared<LossMetric>(std::move(loss), of_mean);
}

}  // namespace lockstep::objectives
