#pragma once

#include <functional>
#include <memory>
#include <vector>

#include <ATen/core/Tensor.h>

#include "framework/axes/axis_names.h"

namespace torch::optim {
class Optimizer;
}

namespace lockstep {

/// Any of LibTorch's optimizers, cut into shards of whole parameters: each parameter's state is at
/// one replica alone, which updates it for all of them. For what ZeroTrainer's optimizers do not
/// have; with gradients that are equal on all replicas, as DataParallel leaves them:
///
///   DataParallel parallel(*model, "data");
///   ShardedOptimizer optimizer(model->parameters(), [](std::vector<at::Tensor> own) {
///     return std::make_unique<torch::optim::RMSprop>(std::move(own));
///   });
///   parallel.backward(loss);
///   optimizer.step();
///
/// The parameters become views of a flat buffer for each owner, which replicas that share memory
/// hold together, once. All replicas call everything alike; for one thread.
class ShardedOptimizer {
 public:
  /// Makes the optimizer of the parameters that are this replica's.
  using Make = std::function<std::unique_ptr<torch::optim::Optimizer>(std::vector<at::Tensor> own)>;

  /// Each parameter once, even if it stands in `parameters` twice; those that require no gradient
  /// are left out. Larger ones go first, to the replica that has least: owners depend on sizes
  /// alone. Throws ValueError for parameters that are not floating and dense.
  ShardedOptimizer(const std::vector<at::Tensor>& parameters, const Make& make,
                   const AxisNames& axis_name = "data");
  ~ShardedOptimizer();
  ShardedOptimizer(const ShardedOptimizer&) = delete;
  ShardedOptimizer& operator=(const ShardedOptimizer&) = delete;

  /// Updates the own parameters from their .grad(), and gives all replicas everybody's. A backward
  /// of what was computed before it is an error of autograd's.
  void step();

  /// This replica's optimizer, to set a learning rate, for example; nullptr if no parameter is its.
  [[nodiscard]] torch::optim::Optimizer* own() const noexcept { return optimizer_.get(); }

 private:
  struct Part {
    std::int64_t owner;
    at::Tensor values;
  };
  AxisNames axis_;
  bool is_common_ = false;
  std::vector<Part> parts_;
  std::vector<at::Tensor> parameters_;
  std::unique_ptr<torch::optim::Optimizer> optimizer_;
};

}  // namespace lockstep
