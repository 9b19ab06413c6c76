#include "framework/objectives/mean_squared_error.h"

#include <ATen/ops/mse_loss.h>

#include "framework/objectives/batch.h"

namespace lockstep {
namespace {

class MeanSquaredError : public Loss {
 public:
  at::Tensor mean(const at::Tensor& outputs, const at::Tensor& targets) const override {
    const auto batch = objectives::value_batch("mean_squared_error", outputs, targets);
    if (outputs.numel() == 0) {
      objectives::refuse("mean_squared_error", "the batch has no samples", outputs, targets);
    }
    return at::mse_loss(batch.outputs, batch.targets);
  }

  bool is_weighted_by_samples() const override { return true; }
};

}  // namespace

std::shared_ptr<const Loss> make_mean_squared_error() {
  return std::make_shared<MeanSquaredError>();
}

}  // namespace lockstep
