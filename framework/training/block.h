#pragma once

#include <memory>

#include <torch/nn/module.h>

namespace lockstep {

namespace training {
class BlockGathering;
}

/// A part of a model whose parameters are needed while it runs, in forward and in backward, and at
/// no other time: a layer, or some that belong together. ZeRO stage 3 gathers them then and drops
/// them after it. Blocks are run by calling them: `x = (*block)(x)`. Without stage 3 that is just
/// forward. Blocks of one model run in the same order on all replicas, and none inside another.
class Block : public torch::nn::Module {
 public:
  /// forward(input), with the block's parameters there. Error after the end of a trainer that has
  /// cut them.
  at::Tensor operator()(const at::Tensor& input);

  /// From now on `runner`, as long as it lives, runs this block, or nothing does: nullptr.
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
