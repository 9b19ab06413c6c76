#include "framework/training/unregistered.h"

#include <algorithm>
#include <string>
#include <vector>

#include <torch/csrc/autograd/functions/accumulate_grad.h>

#include "framework/base/logging.h"
#include "framework/base/text.h"
#include "framework/collectives/axis_index.h"
#include "framework/training/autograd_graph.h"
#include "framework/tree/error_place.h"

namespace lockstep::training {

void tell_unregistered(const ModuleParameters& parameters, const at::Tensor& loss,
                       const AxisNames& axis_name) {
  // Of a tree's leaves a program has picked some.
  if (parameters.module == nullptr || axis_index(axis_name) != 0) return;
  if (!loss.defined() || !loss.grad_fn()) return;
  std::vector<std::string> forms;
  for (const auto& [node, edges] : dependencies_of(loss.grad_fn().get())) {
    const auto* const of_leaf = dynamic_cast<const torch::autograd::AccumulateGrad*>(node);
    if (of_leaf == nullptr) continue;
    const at::Tensor& leaf = of_leaf->variable;
    const auto is_leaf = [&](const at::Tensor& parameter) { return parameter.is_same(leaf); };
    if (std::ranges::any_of(parameters.all, is_leaf)) continue;
    if (!is_claimed(leaf, ParameterClaim::gradients)) forms.push_back(form_of(leaf));
  }
  if (forms.empty()) return;
  std::ranges::sort(forms);  // the nodes have no order
  log_warning(lockstep::str(
      "the loss depends on ", counted(std::ssize(forms), "tensor"),
      forms.size() == 1 ? " that requires a gradient, but is no parameter"
                        : " that require a gradient, but are no parameters",
      " of the module, and so not trained: ", listed(forms, 6),
      "; if they should be, register_module() or register_parameter() is missing (said once)"));
}

}  // namespace lockstep::training
