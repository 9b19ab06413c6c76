#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include <ATen/core/Tensor.h>

#include "framework/axes/axis_names.h"
#include "framework/base/non_copyable.h"

namespace lockstep::training {

/// Options of a backward: what it leaves behind, as in torch::autograd::backward, and what its loss
/// counts.
struct BackwardOptions {
  bool retain_graph = false;  ///< the graph can be walked again
  bool create_graph = false;  ///< gradients have a graph themselves: for higher derivatives
  /// The number of samples (or the sum of weights) that the loss is the mean of: it counts so much
  /// among all replicas' losses. With 0 it counts nothing, whatever it is. All replicas say it, or
  /// none: then their losses count alike.
  std::optional<double> samples{};
  /// The samples of all replicas in all of a step's microbatches. Without it the replicas ask each
  /// other in each backward, and a step's microbatches count alike.
  std::optional<double> of{};
};

/// By which the mean of `samples` is multiplied, so that the replicas' mean is that `of` all.
[[nodiscard]] inline double sample_weight(double samples, double of, std::int64_t replicas) {
  return of > 0 ? samples * static_cast<double>(replicas) / of : 0;
}

/// Hands each parameter's gradient to the receiver as soon as a backward has completed it, in the
/// thread that runs the backward. The parameter's .grad() stays undefined. This holds for
/// backward() and for any other backward that reaches .grad(), such as loss.backward(), but not for
/// autograd::grad. Parameters without a gradient are left out. An exception ends the backward.
class GradientHooks : private NonCopyable {
 public:
  struct Receiver {
    /// Called when a backward that backward() did not start reaches its first parameter.
    std::function<void()> begin;
    std::function<void(std::size_t index, const at::Tensor& gradient)> ready;
    /// Called when that backward is over.
    std::function<void()> end;
  };

  /// `parameters`, called `names`, are leaves that require a gradient.
  GradientHooks(std::vector<std::string> names, const std::vector<at::Tensor>& parameters,
                Receiver receiver);
  ~GradientHooks();

  /// loss.backward(). What .grad() holds is added to, and handed on together with the loss'
  /// gradients.
  void backward(const at::Tensor& loss, const BackwardOptions& options);

 private:
  struct State;
  class Hook;
  std::shared_ptr<State> state_;
};

/// The indices of `parameters` (leaves that require a gradient) in the order in which the backward
/// of the axis' first replica's `loss` will complete their gradients. Parameters that it does not
/// reach come last, in reverse order. Read from autograd's graph, which the engine walks by the
/// numbers that nodes got in the forward, the latest first. An undefined `loss` reaches none.
[[nodiscard]] std::vector<std::size_t> agreed_backward_order(
    const at::Tensor& loss, const std::vector<at::Tensor>& parameters, const AxisNames& axis_name);

}  // namespace lockstep::training
