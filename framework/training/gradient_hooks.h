#pragma once

#include <cstddef>
#include <functional>
#include <memory>
#include <vector>

#include <ATen/core/Tensor.h>

namespace lockstep {

/// Calls `ready(i, gradient)` as soon as a backward has the whole gradient of parameters[i], in the
/// thread that runs it, in place of leaving it in .grad(), which stays undefined. Only in
/// backward(): others are ordinary ones. A parameter without a gradient is not called for. An
/// exception ends the backward.
class GradientHooks {
 public:
  using Ready = std::function<void(std::size_t index, const at::Tensor& gradient)>;

  /// `parameters` are leaves that require a gradient.
  GradientHooks(const std::vector<at::Tensor>& parameters, Ready ready);
  ~GradientHooks();
  GradientHooks(const GradientHooks&) = delete;
  GradientHooks& operator=(const GradientHooks&) = delete;

  /// loss.backward() with the hooks on.
  void backward(const at::Tensor& loss);

 private:
  struct State;
  struct Attached;
  class Hook;
  std::shared_ptr<State> state_;
  std::vector<Attached> attached_;
};

}  // namespace lockstep
