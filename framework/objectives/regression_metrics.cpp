#include <limits>

#include <ATen/TensorOperators.h>
#include <ATen/ops/full_like.h>
#include <ATen/ops/stack.h>
#include <c10/core/GradMode.h>
#include <c10/util/accumulate.h>

#include "framework/objectives/batch.h"
#include "framework/objectives/built_in_metrics.h"
#include "framework/objectives/mean_metric.h"

namespace lockstep::objectives {
namespace {

// Of the targets' mean square. The sums' rounding makes up about 1e-16 of it: what varies less than
// this has too few right digits.
constexpr double kLeastVariance = 1e-12;

class R2 : public Metric {
 public:
  at::Tensor add(const at::Tensor& outputs, const at::Tensor& targets) const override {
    const c10::AutoGradMode no_grad(false);
    const ValueBatch batch = value_batch("r2", outputs, targets);
    const std::int64_t samples = targets.size(0);
    const std::int64_t outputs_each = c10::multiply_integers(targets.sizes().slice(1));
    const auto rows = [&](const at::Tensor& values) {
      return values.to(at::kDouble).reshape({samples, outputs_each});
    };
    const at::Tensor truth = rows(batch.targets);
    const at::Tensor sums = truth.sum(0);
    return at::stack({sums, truth.square().sum(0), (truth - rows(batch.outputs)).square().sum(0),
                      at::full_like(sums, static_cast<double>(samples))})
        .view({-1});
  }

  double value(const at::Tensor& sums) const override {
    const at::Tensor table = sums.view({4, sums.numel() / 4});
    const auto cells = table.accessor<double, 2>();
    double total = 0;
    for (std::int64_t output = 0; output < table.size(1); ++output) {
      const double samples = cells[3][output];
      const double squares = cells[1][output];
      const double variation = squares - cells[0][output] * cells[0][output] / samples;
      if (variation <= kLeastVariance * squares) {
        return std::numeric_limits<double>::quiet_NaN();
      }
      total += 1 - cells[2][output] / variation;
    }
    return total / static_cast<double>(table.size(1));
  }

  bool higher_is_better() const override { return true; }
};

}  // namespace

std::shared_ptr<const Metric> make_r2() {
  return std::make_shared<R2>();
}

std::shared_ptr<const Metric> make_mean_absolute_error() {
  return make_mean_metric({.of_batch = [](const at::Tensor& outputs, const at::Tensor& targets) {
    const ValueBatch batch = value_batch("mean_absolute_error", outputs, targets);
    const at::Tensor errors = batch.outputs.to(at::kDouble) - batch.targets.to(at::kDouble);
    return WeightedSum{errors.abs().sum().item<double>(), static_cast<double>(targets.numel())};
  }});
}

}  // namespace lockstep::objectives
