#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>
#include <source_location>
#include <vector>

#include <ATen/core/Tensor.h>

#include "framework/axes/axis_names.h"
#include "framework/training/flat_parameters.h"
#include "framework/training/module_parameters.h"
#include "framework/training/state.h"

namespace torch::optim {
class Optimizer;
}

namespace lockstep {

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
///
/// Its state are its parameters and what LibTorch's SGD, Adam, AdamW, RMSprop and Adagrad keep for
/// each; ValueError for other optimizers. Options, such as a learning rate that the program has
/// set, are no part of it. Under LibTorch 1.13 the program's global locale must stay as it is: its
/// optimizers find their state by texts (findings/libtorch_optimizer_state_by_locale.sh).
class ShardedOptimizer : public training::ArchivedState {
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
  /// For a module's parameters, which messages and checkpoints then call by their names.
  ShardedOptimizer(torch::nn::Module& module, const Make& make, const AxisNames& axis_name = "data",
                   std::source_location where = std::source_location::current());
  ~ShardedOptimizer() override;

  /// Updates the own parameters from their .grad(), and gives all replicas all updates. A backward
  /// of a graph from before this call is autograd's error.
  void step(std::source_location where = std::source_location::current());
  /// As ZeroTrainer::edit_parameters().
  void edit_parameters(const std::function<void()>& write,
                       std::source_location where = std::source_location::current());

  /// This replica's optimizer, for example to set a learning rate; nullptr if it owns no parameter.
  [[nodiscard]] torch::optim::Optimizer* own() const noexcept { return optimizer_.get(); }

 private:
  ShardedOptimizer(training::ModuleParameters parameters, const Make& make,
                   const AxisNames& axis_name, std::source_location where);
  void archive_state(const training::StateArchive& archive, std::source_location where) override;
  [[nodiscard]] bool is_own(std::size_t index) const;

  AxisNames axis_;
  training::ModuleParameters parameters_;
  std::vector<std::int64_t> owners_;  // by parameter: the replica, counted from 1
  training::ParameterClaims claims_;
  std::unique_ptr<training::FlatParameters> flat_parameters_;
  std::unique_ptr<torch::optim::Optimizer> optimizer_;
  std::uint64_t step_ = 0;  // the last, as the recorder has its number
};

}  // namespace lockstep
