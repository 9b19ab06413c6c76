#pragma once

#include <functional>
#include <memory>

#include <torch/nn/module.h>

namespace lockstep {

class Block;

namespace training {

using BlockForward = std::function<at::Tensor(const at::Tensor& input)>;

/// What runs a trainer's Blocks.
class BlockRunner {
 public:
  virtual ~BlockRunner() = default;
  /// forward(input), with the block's parameters there. If the input has a gradient, it is a view
  /// of this run's own, whose gradient is there when the run's backward is over.
  virtual at::Tensor run(Block& block, const at::Tensor& input, const BlockForward& forward) = 0;
};

}  // namespace training

/// A part of a model whose parameters are needed only while it runs, forward or backward: a layer,
/// or several that belong together. ZeRO stage 3 gathers them for that time and then drops them;
/// ZeroOptions::late_parameters lets them come when the block runs. Run a block by calling it:
/// `x = (*block)(x)`. Otherwise that is just forward. Blocks of one model run in the same order on
/// all replicas, and none inside another.
class Block : public torch::nn::Module {
 public:
  /// forward(input), with the block's parameters there. Error if a trainer that cut them or lets
  /// them come late has ended.
  at::Tensor operator()(const at::Tensor& input);
  /// The same, with `how` in forward's place.
  at::Tensor run(const at::Tensor& input, const training::BlockForward& how);

  /// From now on `runner` runs this block, as long as the runner lives; nullptr: no runner.
  void set_runner(const std::shared_ptr<training::BlockRunner>& runner) {
    runner_ = runner;
    had_runner_ = runner != nullptr;
  }

  virtual at::Tensor forward(const at::Tensor& input) = 0;

 private:
  std::weak_ptr<training::BlockRunner> runner_;
  bool had_runner_ = false;
};

}  // namespace lockstep
