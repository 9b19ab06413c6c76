#include "framework/training/gradient_averaging.h"

#include <vector>

#include <ATen/ops/zeros_like.h>

#include "framework/collectives/psum.h"

namespace lockstep {

at::Tensor average_gradients(std::span<const at::Tensor> parameters, const at::Tensor& loss,
                             const AxisNames& axis_name) {
  std::vector<at::Tensor> gradients;
  for (const at::Tensor& parameter : parameters) {
    gradients.push_back(parameter.grad().defined() ? parameter.grad() : at::zeros_like(parameter));
  }
  gradients.push_back(loss);
  for (at::Tensor& gradient : gradients) gradient = gradient.detach();
  gradients = pmean(gradients, axis_name);
  for (std::size_t i = 0; i < parameters.size(); ++i) parameters[i].mutable_grad() = gradients[i];
  return gradients.back();
}

}  // namespace lockstep
