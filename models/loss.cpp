#include "models/loss.h"

#include <ATen/ops/cross_entropy_loss.h>
#include <ATen/ops/mse_loss.h>

#include "framework/base/errors.h"
#include "framework/base/text.h"

namespace lockstep {
namespace {

[[noreturn]] void refuse(const char* rule, const at::Tensor& outputs, const at::Tensor& targets) {
  throw ValueError(str("loss: ", rule, "; outputs are ", c10::toString(outputs.scalar_type()), " (",
                       join(outputs.sizes()), "), targets ", c10::toString(targets.scalar_type()),
                       " (", join(targets.sizes()), ")"));
}

at::Tensor mean_squared_error(const at::Tensor& outputs, const at::Tensor& targets) {
  if (outputs.sizes() != targets.sizes() || outputs.scalar_type() != targets.scalar_type()) {
    refuse("regression needs outputs and targets of one shape and dtype", outputs, targets);
  }
  return at::mse_loss(outputs, targets);
}

at::Tensor cross_entropy(const at::Tensor& outputs, const at::Tensor& targets) {
  if (outputs.dim() != 2 || targets.dim() != 1 || outputs.size(0) != targets.size(0) ||
      targets.scalar_type() != at::kLong) {
    refuse("classification needs outputs (samples, classes) and int64 targets (samples)", outputs,
           targets);
  }
  return at::cross_entropy_loss(outputs, targets);
}

}  // namespace

at::Tensor loss(Task task, const at::Tensor& outputs, const at::Tensor& targets) {
  if (outputs.numel() == 0) refuse("the batch has no samples", outputs, targets);
  return task == Task::regression ? mean_squared_error(outputs, targets)
                                  : cross_entropy(outputs, targets);
}

}  // namespace lockstep
