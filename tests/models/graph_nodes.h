#pragma once

#include <cstddef>
#include <set>
#include <vector>

#include <ATen/core/Tensor.h>
#include <torch/csrc/autograd/function.h>

namespace lockstep::testing {

/// The number of steps that the backward of `tensor` would take: what a model does not keep has
/// none.
inline std::size_t graph_nodes(const at::Tensor& tensor) {
  std::vector<const torch::autograd::Node*> waiting{tensor.grad_fn().get()};
  std::set<const torch::autograd::Node*> seen;
  while (!waiting.empty()) {
    const torch::autograd::Node* const node = waiting.back();
    waiting.pop_back();
    if (node == nullptr || !seen.insert(node).second) continue;
    for (const auto& edge : node->next_edges()) waiting.push_back(edge.function.get());
  }
  return seen.size();
}

}  // namespace lockstep::testing
