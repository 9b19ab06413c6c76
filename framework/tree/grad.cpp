#include "framework/tree/grad.h"

#include <algorithm>

#include <ATen/ops/zeros_like.h>
#include <c10/core/GradMode.h>
#include <torch/csrc/autograd/autograd.h>

namespace lockstep::tree_detail {

bool differentiated_outside(const std::vector<Tensor>& leaves) {
  return c10::GradMode::is_enabled() &&
         std::any_of(leaves.begin(), leaves.end(),
                     [](const Tensor& leaf) { return leaf.defined() && leaf.requires_grad(); });
}

std::pair<Tensor, std::vector<Tensor>> value_and_grad_of_leaves(const LossOfLeaves& loss,
                                                                const std::vector<Tensor>& leaves) {
  const bool nested = differentiated_outside(leaves);
  const c10::AutoGradMode enable_grad(true);

  std::vector<Tensor> variables;
  for (const Tensor& leaf : leaves) {
    if (!leaf.defined() || !leaf.is_floating_point()) {
      throw ValueError(str("grad: leaf ", variables.size(), " of the first argument is ",
                           leaf.defined() ? toString(leaf.scalar_type()) : "undefined",
                           "; only floating-point leaves have derivatives"));
    }
    // Under an outer differentiation the variable stays a function of the outer one.
    Tensor variable = leaf.requires_grad() && nested ? leaf.view_as(leaf) : leaf.detach();
    if (!variable.requires_grad()) variable.requires_grad_();
    variables.push_back(std::move(variable));
  }

  Tensor value = loss(variables);
  if (!value.defined() || value.numel() != 1 || !value.is_floating_point()) {
    throw ValueError(str("grad: the function's value must be one floating-point number, not ",
                         value.defined() ? lockstep::str("a tensor of ", value.sizes(), " ",
                                                         toString(value.scalar_type()))
                                         : std::string("undefined")));
  }
  std::vector<Tensor> gradients(variables.size());
  if (value.requires_grad() && !variables.empty()) {
    gradients = torch::autograd::grad({value}, variables, /*grad_outputs=*/{},
                                      /*retain_graph=*/nested, /*create_graph=*/nested,
                                      /*allow_unused=*/true);
  }
  for (std::size_t i = 0; i < gradients.size(); ++i) {
    if (!gradients[i].defined()) gradients[i] = at::zeros_like(leaves[i]).detach();
  }
  return {nested ? value : value.detach(), std::move(gradients)};
}

}  // namespace lockstep::tree_detail
