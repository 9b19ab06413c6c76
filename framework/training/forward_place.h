#pragma once

#include <functional>
#include <string>
#include <type_traits>
#include <vector>

#include <ATen/core/Tensor.h>

#include "framework/tree/error_place.h"

namespace torch::nn {
class Module;
}

namespace lockstep {
namespace training {

/// Whether this thread runs a forward again, to see where it fails: see place_of_failure().
inline constinit thread_local bool looks_for_place = false;

/// While an exception of forward(), which runs `module`, is handled: where it comes from, for
/// people. "in 'fc2': linear of Float (32, 10), Float (6, 48), Float (6); inputs Float (32, 784)"
/// if forward() throws the same again, with each operator of LibTorch's looked at; a module is
/// known by its parameters and buffers. The second run is one in evaluation mode, or, if that does
/// not throw the same, as the module is. It refuses collectives, which others would wait for, and
/// draws other keys. Where memory or another replica is to blame, there is none.
[[nodiscard]] std::string place_of_failure(torch::nn::Module& module,
                                           const std::function<void()>& forward,
                                           const std::vector<at::Tensor>& inputs);

// The tensors among the arguments.
template <typename... Inputs>
std::vector<at::Tensor> tensors_among(const Inputs&... inputs) {
  std::vector<at::Tensor> tensors;
  const auto add = [&](const auto& input) {
    if constexpr (std::is_convertible_v<decltype(input), const at::Tensor&>) {
      tensors.push_back(input);
    }
  };
  (add(inputs), ...);
  return tensors;
}

}  // namespace training

/// module.forward(inputs…). What it throws gains its place, as rethrow_at() adds it: the path of
/// the module in `module` that failed, or after which it failed, the operator, and the shapes that
/// went in. That costs nothing until it throws: then the forward runs once more, or twice, with
/// what it prints and counts. Collectives are refused meanwhile, so each replica may do so alone.
///
///   const at::Tensor outputs = lockstep::run_forward(*net, inputs);
template <typename Module, typename... Inputs>
auto run_forward(Module& module, const Inputs&... inputs) {
  const auto forward = [&] { return module.forward(inputs...); };
  return placed(
      [&] {
        return training::place_of_failure(
            module, [&] { (void)forward(); }, training::tensors_among(inputs...));
      },
      forward);
}

}  // namespace lockstep
