#include "framework/training/backward_order.h"

#include <algorithm>
#include <cstdint>
#include <queue>
#include <unordered_map>
#include <utility>

#include <ATen/ops/empty.h>
#include <torch/csrc/autograd/function.h>
#include <torch/csrc/autograd/variable.h>

#include "framework/collectives/in_place.h"

namespace lockstep {
namespace {

using torch::autograd::Node;

// How many edges of the graph above `root` lead to each node.
std::unordered_map<const Node*, int> dependencies_of(Node* root) {
  std::unordered_map<const Node*, int> dependencies{{root, 0}};
  std::vector<Node*> reached{root};
  while (!reached.empty()) {
    Node* const node = reached.back();
    reached.pop_back();
    for (const auto& edge : node->next_edges()) {
      if (!edge.function) continue;
      Node* const next = edge.function.get();
      if (dependencies[next]++ == 0) reached.push_back(next);
    }
  }
  return dependencies;
}

}  // namespace

std::vector<std::size_t> backward_order(const at::Tensor& loss,
                                        const std::vector<at::Tensor>& parameters) {
  std::unordered_map<const Node*, std::size_t> index_of;
  std::vector<bool> found(parameters.size(), false);
  for (std::size_t i = 0; i < parameters.size(); ++i) {
    index_of.emplace(torch::autograd::impl::grad_accumulator(parameters[i]).get(), i);
  }
  std::vector<std::size_t> order;
  if (loss.defined() && loss.grad_fn()) {
    Node* const root = loss.grad_fn().get();
    auto dependencies = dependencies_of(root);
    const auto later = [](const Node* a, const Node* b) {
      return a->sequence_nr() < b->sequence_nr();
    };
    std::priority_queue<Node*, std::vector<Node*>, decltype(later)> ready(later);
    ready.push(root);
    while (!ready.empty()) {
      Node* const node = ready.top();
      ready.pop();
      const auto leaf = index_of.find(node);
      if (leaf != index_of.end()) {
        order.push_back(leaf->second);
        found[leaf->second] = true;
      }
      for (const auto& edge : node->next_edges()) {
        if (edge.function && --dependencies[edge.function.get()] == 0) {
          ready.push(edge.function.get());
        }
      }
    }
  }
  for (std::size_t i = parameters.size(); i-- > 0;) {
    if (!found[i]) order.push_back(i);
  }
  return order;
}

std::vector<std::size_t> agreed_backward_order(const at::Tensor& loss,
                                               const std::vector<at::Tensor>& parameters,
                                               const AxisNames& axis_name) {
  const auto own = backward_order(loss, parameters);
  const at::Tensor order = at::empty({static_cast<std::int64_t>(own.size())}, at::kLong);
  auto* const data = order.data_ptr<std::int64_t>();
  std::copy(own.begin(), own.end(), data);
  pbroadcast_(order, axis_name, 0);
  return {data, data + own.size()};
}

}  // namespace lockstep
