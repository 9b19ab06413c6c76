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

/// Any of LibTorch's optimizers, cut into shards of whole parameters: one replica holds each
/// parameter's state, and updates it for all. For optimizers that ZeroTrainer does not have.
/// Gradients must be equal on all replicas, as DataParallel leaves them:
///
///   DataParallel parallel(*model, "data");
///   ShardedOptimizer optimizer(model->parameters(), [](std::vector<at::Tensor> own) {
///     return std::make_unique<torch::optim::RMSprop>(std::move(own));
///   });
///   parallel.backward(loss);
///   optimizer.step();
///
/// The parameters lie in one flat buffer for each owner. Replicas that share memory hold these
/// once. A program replaces and writes parameters as with a ZeroTrainer (zero.h). When the
/// optimizer ends each replica owns ordinary parameters again. All replicas call everything alike;
/// for one thread.
class ShardedOptimizer {
 public:
  /// Makes the optimizer for the parameters that this replica owns.
  using Make = std::function<std::unique_ptr<torch::optim::Optimizer>(std::vector<at::Tensor> own)>;

  /// Repeated `parameters` count once; those that require no gradient are left out. Owners depend
  /// on sizes alone: larger parameters go first, each to the replica that has least. Throws
  /// ValueError for parameters that are not floating and dense, that overlap, that another trainer
  /// has, and that differ in shape or dtype between replicas.
  ShardedOptimizer(const std::vector<at::Tensor>& parameters, const Make& make,
                   const AxisNames& axis_name = "data",
                   std::source_location where = std::source_location::current());
  ~ShardedOptimizer();
  ShardedOptimizer(const ShardedOptimizer&) = delete;
  ShardedOptimizer& operator=(const ShardedOptimizer&) = delete;

  /// Updates the own parameters from their .grad(), and gives all replicas all updates. A backward
  /// of a graph from before this call is autograd's error.
  void step(std::source_location where = std::source_location::current());
  /// As ZeroTrainer::edit_parameters().
  void edit_parameters(const std::function<void()>& write,
                       std::source_location where = std::source_location::current());

  /// This replica's optimizer, for example to set a learning rate; nullptr if it owns no parameter.
  [[nodiscard]] torch::optim::Optimizer* own() const noexcept { return optimizer_.get(); }

 private:
  AxisNames axis_;
  std::unique_ptr<training::ParameterClaims> claims_;
  std::unique_ptr<training::FlatParameters> parameters_;
  std::unique_ptr<torch::optim::Optimizer> optimizer_;
};

}  // namespace lockstep
