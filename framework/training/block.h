#pragma once

#include <memory>
#include <utility>

#include <torch/nn/module.h>

namespace lockstep {

/// A part of a model whose parameters are needed while it runs, in forward and in backward, and at
/// no other time: a layer, or some that belong together. ZeRO stage 3 gathers them then and drops
/// them after it. Blocks are run by calling them: `x = (*block)(x)`. Without stage 3 that is just
/// forward. Blocks of one model run in the same order on all replicas, and none inside another.
class Block : public torch::nn::Module {
 public:
  /// What a trainer does around a block's run.
  class Runner {
   public:
    virtual ~Runner() = default;
    virtual at::Tensor run(Block& block, const at::Tensor& input) = 0;
  };

  /// forward(input), with the block's parameters there. Error after the end of a trainer that has
  /// cut them.
  at::Tensor operator()(const at::Tensor& input);

  /// From now on `runner` runs this block, as long as it lives.
  void set_runner(std::weak_ptr<Runner> runner) {
    runner_ = std::move(runner);
    had_runner_ = true;
  }
  /// It is an ordinary module from now on.
  void remove_runner() {
    runner_.reset();
    had_runner_ = false;
  }

  virtual at::Tensor forward(const at::Tensor& input) = 0;

 private:
  std::weak_ptr<Runner> runner_;
  bool had_runner_ = false;
};

}  // namespace lockstep
