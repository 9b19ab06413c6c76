#include "framework/replicas/shared_result.h"

#include <string>
#include <utility>

#include <ATen/ops/zeros_like.h>
#include <c10/core/GradMode.h>
#include <torch/csrc/autograd/function.h>
#include <torch/csrc/autograd/functions/utils.h>

#include "framework/collectives/autograd_node.h"
#include "framework/replicas/own_graph.h"

namespace lockstep {
namespace {

at::Tensor zeros_of(const at::Tensor& gradient);

class CountedElsewhere final : public torch::autograd::Node {
 public:
  std::string name() const override { return "CountedElsewhere"; }
  torch::autograd::variable_list apply(torch::autograd::variable_list&& gradients) override {
    for (at::Tensor& gradient : gradients) {
      if (gradient.defined()) gradient = zeros_of(gradient);
    }
    return std::move(gradients);
  }
};

// `value` as a function of `source` whose gradient counts elsewhere.
at::Tensor following(at::Tensor value, const at::Tensor& source) {
  const auto node = make_node<CountedElsewhere>();
  node->set_next_edges({torch::autograd::impl::gradient_edge(source)});
  torch::autograd::set_history(value, node);
  return value;
}

// Still a function of the gradient: the backward of a backward runs in all members, too.
at::Tensor zeros_of(const at::Tensor& gradient) {
  at::Tensor zeros = at::zeros_like(gradient).detach();
  const bool follows = is_differentiable(gradient) && c10::GradMode::is_enabled();
  return follows ? following(std::move(zeros), gradient) : zeros;
}

}  // namespace

at::Tensor counted_elsewhere(const at::Tensor& result) {
  const bool follows = is_differentiable(result) && c10::GradMode::is_enabled();
  return follows ? following(result.detach(), result) : result;
}

}  // namespace lockstep
