#include "framework/objectives/residuals.h"

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <limits>
#include <tuple>

#include <ATen/TensorOperators.h>
#include <ATen/ops/sort.h>
#include <c10/util/accumulate.h>

#include "framework/base/text.h"
#include "framework/objectives/batch.h"

namespace lockstep::objectives {
namespace {

class Residuals : public Tally {
 public:
  at::Tensor add(const at::Tensor& outputs, const at::Tensor& targets) const override {
    const ValueBatch batch = value_batch("residuals", outputs, targets);
    const std::int64_t values = c10::multiply_integers(targets.sizes().slice(1));
    return (batch.targets.to(at::kDouble) - batch.outputs.detach().to(at::kDouble))
        .reshape({targets.size(0), values});
  }

  bool is_of_rows() const override { return true; }
};

}  // namespace

std::shared_ptr<const Tally> make_residuals() {
  return std::make_shared<Residuals>();
}

std::vector<double> quantiles(const at::Tensor& values, const std::vector<double>& parts) {
  const at::Tensor sorted = std::get<0>(at::sort(values.contiguous()));  // NaN comes last
  const std::int64_t last = sorted.numel() - 1;
  const auto* const cells = sorted.data_ptr<double>();
  return mapped(parts, [&](double part) {
    if (last < 0 || std::isnan(cells[last])) return std::numeric_limits<double>::quiet_NaN();
    const double place = part * static_cast<double>(last);
    const auto below = static_cast<std::int64_t>(place);
    const double weight = place - static_cast<double>(below);
    const double next = cells[std::min(below + 1, last)];
    return weight > 0 ? cells[below] + weight * (next - cells[below]) : cells[below];
  });
}

}  // namespace lockstep::objectives
