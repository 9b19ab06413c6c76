#pragma once

#include <memory>

#include <torch/nn/module.h>

namespace lockstep {

namespace training {
class BlockGathering;
}

/// A part of a model whose parameters are needed only while it runs, forward or backward: a layer,
/// or several that belong together. ZeRO stage 3 gathers them for that time and then drops them.
/// Run a block by calling it: `x = (*block)(x)`. Without stage 3 that is just forward. Blocks of
/// one model run in the same order on all replicas, and none inside another.
class Block : public torch::nn::Module {
 public:
  /// forward(input), with the block's parameters gathered. Error if a trainer that cut them has
  /// ended.
  at::Tensor operator()(const at::Tensor& input);

  /// From now on `runner` runs this block, as long as the runner lives; nullptr: no runner.
  void set_runner(const std::shared_ptr<training::BlockGathering>& runner) {
    runner_ = runner;
    had_runner_ = runner != nullptr;
  }

  virtual at::Tensor forward(const at::Tensor& input) = 0;

 private:
  std::weak_ptr<training::BlockGathering> runner_;
  bool had_runner_ = false;
};

}  // namespace lockstep
