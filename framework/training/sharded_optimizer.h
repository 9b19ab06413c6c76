#pragma once

#include <functional>
#include <memory>
#include <source_location>
#include <vector>

#include <ATen/core/Tensor.h>

#include "framework/axes/axis_names.h"

namespace torch::optim {
class Optimizer;
}

namespace lockstep {

namespace training {
class FlatParameters;
class ParameterClaims;
}  // namespace training

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
/// The parameters lie in a flat buffer for each owner, which replicas that share memory hold
/// together, once; a program replaces and writes them as those of a ZeroTrainer (zero.h). When it
/// ends each replica owns ordinary parameters again. All replicas call everything alike; for one
/// thread.
class ShardedOptimizer {
 public:
  /// Makes the optimizer of the parameters that are this replica's.
  using Make = std::function<std::unique_ptr<torch::optim::Optimizer>(std::vector<at::Tensor> own)>;

  /// Each parameter once, even if it stands in `parameters` twice; those that require no gradient
  /// are left out. Larger ones go first, to the replica that has least: owners depend on sizes
  /// alone. Throws ValueError for parameters that are not floating and dense, that overlap, that
  /// another trainer has, and that differ in shape or dtype between replicas.
  ShardedOptimizer(const std::vector<at::Tensor>& parameters, const Make& make,
                   const AxisNames& axis_name = "data",
                   std::source_location where = std::source_location::current());
  ~ShardedOptimizer();
  ShardedOptimizer(const ShardedOptimizer&) = delete;
  ShardedOptimizer& operator=(const ShardedOptimizer&) = delete;

  /// Updates the own parameters from their .grad(), and gives all replicas everybody's. A backward
  /// of what was computed before it is an error of autograd's.
  void step(std::source_location where = std::source_location::current());
  /// As ZeroTrainer::edit_parameters().
  void edit_parameters(const std::function<void()>& write,
                       std::source_location where = std::source_location::current());

  /// This replica's optimizer, to set a learning rate, for example; nullptr if no parameter is its.
  [[nodiscard]] torch::optim::Optimizer* own() const noexcept { return optimizer_.get(); }

 private:
  AxisNames axis_;
  std::unique_ptr<training::ParameterClaims> claims_;
  std::unique_ptr<training::FlatParameters> parameters_;
  std::unique_ptr<torch::optim::Optimizer> optimizer_;
};

}  // namespace lockstep
