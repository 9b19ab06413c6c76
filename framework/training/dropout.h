#pragma once

#include <cstdint>
#include <memory>
#include <ostream>
#include <string>

#include <ATen/core/Tensor.h>
#include <torch/nn/cloneable.h>
#include <torch/nn/pimpl.h>

#include "framework/base/random.h"

namespace lockstep {

/// `input`, with each element set to zero with probability `p` and otherwise divided by 1 - p. The
/// choice is a pure function of `key` and the sizes. Throws ValueError for a `p` outside of [0, 1]
/// and an input that is not floating.
[[nodiscard]] at::Tensor dropout(const at::Tensor& input, double p, const Key& key);

/// A trainer's position in training, from which its module draws at random.
struct RandomPosition {
  Key key;  ///< of seed and replica
  std::int64_t step = 0;
  std::int64_t microbatch = 0;
  std::shared_ptr<const int> replica;  ///< Environment::identity()
};

/// As torch::nn::Dropout, without its process-wide generator: which elements are dropped is a pure
/// function of the trainer's seed, the replica, step and microbatch, the module's path in what is
/// trained (the first, if several), and which call it is of that microbatch, all from 0:
///
///   dropout(input, p, Key(seed).fold("dropout").fold(replica).fold(step).fold(microbatch)
///                         .fold(path).fold(call))
///
/// So threads, processes, fewer workers and all of ZeRO's stages drop the same ones.
///
///   torch::nn::Sequential net(torch::nn::Linear(64, 64), lockstep::Dropout(0.1));
///   ZeroTrainer trainer(*net, {.seed = 7});
///
/// In evaluation mode (and with p = 0) forward returns its input. In training mode it throws Error
/// unless a trainer (ZeroTrainer, DataParallel) of a module that contains this one is alive, and in
/// a map inside the replica: use dropout() with a key there.
class DropoutImpl : public torch::nn::Cloneable<DropoutImpl> {
 public:
  /// Throws ValueError for a `p` outside of [0, 1].
  explicit DropoutImpl(double p = 0.5);

  at::Tensor forward(const at::Tensor& input);

  void reset() override {}
  void pretty_print(std::ostream& stream) const override;

  /// Called by a trainer whose module has this Dropout at `path`.
  void follow(std::weak_ptr<const RandomPosition> place, std::string path);

 private:
  double p_;
  std::weak_ptr<const RandomPosition> place_;
  std::string path_;
  // Calls in the microbatch of the last one.
  std::int64_t step_ = -1;
  std::int64_t microbatch_ = -1;
  std::uint64_t calls_ = 0;
};
TORCH_MODULE(Dropout);

}  // namespace lockstep
