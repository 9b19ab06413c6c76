#pragma once

#include <cstddef>
#include <functional>
#include <memory>
#include <string>
#include <vector>

#include <ATen/core/Tensor.h>

#include "framework/axes/axis_names.h"

namespace lockstep::training {

/// What a backward leaves behind, as in torch::autograd::backward.
struct BackwardOptions {
  bool retain_graph = false;  ///< the graph can be walked again
  bool create_graph = false;  ///< gradients have a graph themselves: for higher derivatives
};

/// Hands each parameter's gradient to the receiver as soon as a backward has completed it, in the
/// thread that runs the backward. The parameter's .grad() stays undefined. Backwards are those of
/// backward() and any other that reaches a parameter's .grad(), such as loss.backward(); not
/// autograd::grad. A parameter without a gradient is not called for. An exception ends the
/// backward.
class GradientHooks {
 public:
  struct Receiver {
    /// A backward that backward() has not started has come to its first parameter.
    std::function<void()> begin;
    std::function<void(std::size_t index, const at::Tensor& gradient)> ready;
    /// That backward is over.
    std::function<void()> end;
  };

  /// `parameters`, called `names`, are leaves that require a gradient.
  GradientHooks(std::vector<std::string> names, const std::vector<at::Tensor>& parameters,
                Receiver receiver);
  ~GradientHooks();
  GradientHooks(const GradientHooks&) = delete;
  GradientHooks& operator=(const GradientHooks&) = delete;

  /// loss.backward(), in which what .grad() held before does not count.
  void backward(const at::Tensor& loss, const BackwardOptions& options);

 private:
  struct State;
  class Hook;
  std::shared_ptr<State> state_;
};

/// The indices of `parameters` (leaves that require a gradient) in the order in which the backward
/// of `loss` will have their gradients ready: those it does not reach come last, in reverse order.
/// Read from autograd's graph, which the engine walks by the number that each node got in the
/// forward, the latest first; nothing is run. `loss` may be undefined: it reaches none.
[[nodiscard]] std::vector<std::size_t> backward_order(const at::Tensor& loss,
                                                      const std::vector<at::Tensor>& parameters);

/// That of the axis' first replica, for all of them.
[[nodiscard]] std::vector<std::size_t> agreed_backward_order(
    const at::Tensor& loss, const std::vector<at::Tensor>& parameters, const AxisNames& axis_name);

}  // namespace lockstep::training
