#pragma once

#include <cstdint>
#include <set>
#include <vector>

#include <ATen/core/Tensor.h>
#include <torch/csrc/autograd/function.h>

namespace lockstep::replicas {

// Where one replica's part of autograd's graph ends, so that each can be differentiated by itself.

/// An end of a replica's graph at a tensor that its function captured, and where it would go on.
struct CapturedEnd {
  torch::autograd::Edge inside;  // to a node that stands for the captured tensor
  torch::autograd::Edge outside;
};

/// The nodes that a thread made while it ran a replica; those of other calls have other numbers.
struct NodesOfThread {
  std::uint64_t thread;
  std::uint64_t begin;
  std::uint64_t end;
};

/// A replica's own part of the graph: what it made between its inputs and its results.
struct OwnGraph {
  std::vector<NodesOfThread> nodes;
  std::set<torch::autograd::Node*> inputs;  // where it ends as it should
  std::vector<CapturedEnd> captured;        // in the order of walks from the results

  /// The edge or, if it leads out of the graph, the edge that replaces it.
  [[nodiscard]] torch::autograd::Edge end_of(const torch::autograd::Edge& edge);
  /// Ends the graph behind `results` at what was captured. Without it the replica's backward would
  /// run on into the graph outside, from one captured tensor to another.
  void cut_off(const std::vector<at::Tensor>& results);
};

/// Whether autograd follows the tensor: defined, floating, and requires a gradient.
[[nodiscard]] bool is_differentiable(const at::Tensor& tensor);

/// Zeros of the shape and dtype of the gradients that the edge takes.
[[nodiscard]] at::Tensor zeros_for(const torch::autograd::Edge& edge);

/// A map may give several members of a job one shared value: a result, or the gradient of a shared
/// argument. Its gradient counts only in the member with the first replica that shares it. In the
/// others, gradients that reach this result become zeros, so that the map's backward runs, too.
[[nodiscard]] at::Tensor counted_elsewhere(const at::Tensor& result);

}  // namespace lockstep::replicas
