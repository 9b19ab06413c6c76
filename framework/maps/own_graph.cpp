#include "framework/maps/own_graph.h"

#include <algorithm>
#include <string>
#include <utility>

#include <ATen/ops/zeros_like.h>
#include <c10/core/GradMode.h>
#include <torch/csrc/autograd/functions/accumulate_grad.h>
#include <torch/csrc/autograd/functions/utils.h>

#include "framework/base/errors.h"
#include "framework/collectives/differentiable.h"

namespace lockstep::maps {

using at::Tensor;
using torch::autograd::Edge;
using torch::autograd::Node;
using torch::autograd::variable_list;

namespace {

// The node that stands in a replica's graph for a tensor that its function captured.
class Captured final : public Node {
 public:
  explicit Captured(const Edge& edge) { (void)add_input_metadata(zeros_for(edge)); }
  std::string name() const override { return "Captured"; }
  variable_list apply(variable_list&&) override {
    throw NameError(
        "a backward reaches a tensor that a map's function captured by another way than the "
        "function's result");
  }
};

class CountedElsewhere final : public Node {
 public:
  std::string name() const override { return "CountedElsewhere"; }
  variable_list apply(variable_list&& gradients) override {
    for (Tensor& gradient : gradients) {
      // Zeros stay a function of the gradient: a backward's backward runs in all members, too.
      if (gradient.defined()) gradient = following(at::zeros_like(gradient).detach(), gradient);
    }
    return std::move(gradients);
  }

  // Returns `value` as a function of `source`, whose gradient counts elsewhere.
  static Tensor following(Tensor value, const Tensor& source) {
    if (is_differentiable(source) && c10::GradMode::is_enabled()) {
      const auto node = collectives::make_node<CountedElsewhere>();
      node->set_next_edges({torch::autograd::impl::gradient_edge(source)});
      torch::autograd::set_history(value, node);
    }
    return value;
  }
};

}  // namespace

bool is_differentiable(const Tensor& tensor) {
  return tensor.defined() && tensor.is_floating_point() && tensor.requires_grad();
}

Tensor zeros_for(const Edge& edge) {
  if (const auto* leaf = dynamic_cast<torch::autograd::AccumulateGrad*>(edge.function.get())) {
    return at::zeros_like(leaf->variable).detach();
  }
  return edge.function->input_metadata(edge.input_nr).zeros_like();
}

Edge OwnGraph::end_of(const Edge& edge) {
  Node* const node = edge.function.get();
  if (node == nullptr || inputs.count(node) > 0) return edge;
  const bool leaf = dynamic_cast<torch::autograd::AccumulateGrad*>(node) != nullptr;
  const bool is_own = !leaf && std::ranges::any_of(nodes, [&](const NodesOfThread& own) {
    return own.thread == node->thread_id() && own.begin <= node->sequence_nr() &&
           node->sequence_nr() < own.end;
  });
  if (is_own) return edge;
  const auto known = std::ranges::find(captured, edge, &CapturedEnd::outside);
  if (known != captured.end()) return known->inside;
  captured.push_back({Edge(collectives::make_node<Captured>(edge), 0), edge});
  inputs.insert(captured.back().inside.function.get());
  return captured.back().inside;
}

void OwnGraph::cut_off(const std::vector<Tensor>& results) {
  std::set<Node*> seen;
  std::vector<Node*> open;
  const auto visit = [&](const Edge& edge) {
    Node* const node = edge.function.get();
    if (node != nullptr && inputs.count(node) == 0 && seen.insert(node).second) {
      open.push_back(node);
    }
  };
  for (const Tensor& result : results) {
    if (is_differentiable(result)) visit(end_of(torch::autograd::impl::gradient_edge(result)));
  }
  while (!open.empty()) {
    Node* const node = open.back();
    open.pop_back();
    for (Edge& edge : node->next_edges()) {
      edge = end_of(edge);
      visit(edge);
    }
  }
}

Tensor counted_elsewhere(const Tensor& result) {
  return is_differentiable(result) ? CountedElsewhere::following(result.detach(), result) : result;
}

}  // namespace lockstep::maps
