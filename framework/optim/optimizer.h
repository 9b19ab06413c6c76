#pragma once

#include <memory>
#include <vector>

#include <ATen/core/Tensor.h>

#include "framework/optim/optimizer_options.h"

namespace lockstep {

/// Updates parameters in place from their gradients.
class Optimizer {
 public:
  Optimizer() = default;
  Optimizer(const Optimizer&) = delete;
  Optimizer& operator=(const Optimizer&) = delete;
  virtual ~Optimizer() = default;

  /// One update of every parameter from its .grad(); a parameter without one stays as it is.
  virtual void step() = 0;
};

/// The optimizer that `options` name, over `parameters`: leaf tensors of a floating dtype, whose
/// memory it shares. What it keeps of earlier steps (momentum, moments) starts at zero. Throws
/// ValueError for an unknown name, for numbers outside their range, and for an option that is set
/// but that this optimizer doesn't have.
[[nodiscard]] std::unique_ptr<Optimizer> make_optimizer(const OptimizerOptions& options,
                                                        std::vector<at::Tensor> parameters);

}  // namespace lockstep
