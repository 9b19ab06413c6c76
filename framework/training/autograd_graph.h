#pragma once

#include <unordered_map>
#include <vector>

#include <torch/csrc/autograd/function.h>

namespace lockstep::training {

/// How many edges of autograd's graph above `root` lead to each of its nodes.
[[nodiscard]] inline std::unordered_map<const torch::autograd::Node*, int> dependencies_of(
    torch::autograd::Node* root) {
  std::unordered_map<const torch::autograd::Node*, int> dependencies{{root, 0}};
  std::vector<torch::autograd::Node*> reached{root};
  while (!reached.empty()) {
    torch::autograd::Node* const node = reached.back();
    reached.pop_back();
    for (const auto& edge : node->next_edges()) {
      if (!edge.function) continue;
      torch::autograd::Node* const next = edge.function.get();
      if (dependencies[next]++ == 0) reached.push_back(next);
    }
  }
  return dependencies;
}

}  // namespace lockstep::training
