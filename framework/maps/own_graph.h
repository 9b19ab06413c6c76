#pragma once

#include <cstdint>
#include <set>
#include <vector>

#include <ATen/core/Tensor.h>
#include <torch/csrc/autograd/function.h>

namespace lockstep::maps {

// One replica's part of autograd's graph is cut off here, to be differentiated by itself.

/// An end of a replica's graph at a tensor that its function captured, and the edge beyond it.
struct CapturedEnd {
  torch::autograd::Edge inside;  // to a node that stands for the captured tensor
  torch::autograd::Edge outside;
};

/// The nodes that a thread made while it ran a replica; nodes of other calls have other numbers.
struct NodesOfThread {
  std::uint64_t thread;
  std::uint64_t begin;
  std::uint64_t end;
};

/// A replica's own part of the graph: the nodes that it made between its inputs and its results.
struct OwnGraph {
  std::vector<NodesOfThread> nodes;
  std::set<torch::autograd::Node*> inputs;  // the intended ends
  std::vector<CapturedEnd> captured;        // in the order of walks from the results

  /// Returns the edge or, if it leads out of the graph, the edge that replaces it.
  [[nodiscard]] torch::autograd::Edge end_of(const torch::autograd::Edge& edge);
  /// Ends the graph behind `results` at captured tensors. Otherwise the replica's backward would
  /// run on into the graph outside, from one captured tensor to another.
  void cut_off(const std::vector<at::Tensor>& results);
};

/// Returns true if autograd follows the tensor: it is defined, floating, and requires a gradient.
[[nodiscard]] bool is_differentiable(const at::Tensor& tensor);

/// Returns zeros of the shape and dtype of the gradients that the edge takes.
[[nodiscard]] at::Tensor zeros_for(const torch::autograd::Edge& edge);

/// Returns `result` for a member without the first replica that shares it. A map may give several
/// members of a job one shared value (a result, or the gradient of a shared argument): its gradient
/// counts only with that replica. Elsewhere it becomes zeros, so that the map's backward runs, too.
[[nodiscard]] at::Tensor counted_elsewhere(const at::Tensor& result);

}  // namespace lockstep::maps
