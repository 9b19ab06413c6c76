#pragma once

#include <cstdint>
#include <memory>
#include <string>

#include "framework/base/random.h"
#include "framework/training/trained_module.h"

namespace lockstep {

/// What a module that draws at random derives from, publicly, beside torch::nn::Module: its keys
/// are pure functions of the trainer's seed, the replica, step and microbatch, the module's path in
/// what is trained (the first, if several), and which call it is of that microbatch, all from 0. So
/// threads, processes, fewer workers and all of ZeRO's stages draw the same.
///
///   class NoiseImpl : public torch::nn::Cloneable<NoiseImpl>, public lockstep::KeyedModule {
///    public:
///     NoiseImpl() : KeyedModule("noise") {}
///     void reset() override {}
///     at::Tensor forward(const at::Tensor& x) {
///       return is_training() ? x + noise_of(next_key(), x.sizes()) : x;
///     }
///   };
///
/// lockstep::Dropout and lockstep::StochasticDepth are such modules.
class KeyedModule : public TrainedModule {
 protected:
  /// `kind` tells these draws from those of other modules. Messages call the module `what`
  /// ("KeyedModule 'noise'" if that is empty), and say that `instead` works without a trainer.
  explicit KeyedModule(std::string kind, std::string what = "",
                       std::string instead = "draw from a lockstep::Key of your own");

  /// The key of this call (in the second run of a block, that of the first: recompute.h):
  ///
  ///   Key(seed).fold(kind).fold(replica).fold(step).fold(microbatch).fold(path).fold(call)
  ///
  /// Error unless a trainer (ZeroTrainer, DataParallel) of a module that contains this one is
  /// alive, and in a map inside the replica.
  [[nodiscard]] Key next_key();

 private:
  std::string kind_;
  std::string what_;
  std::string instead_;
  // Calls in the microbatch of the last one, whose key tells it from others.
  std::weak_ptr<const TrainerPosition> position_;
  std::uint64_t microbatch_ = 0;
  std::uint64_t calls_ = 0;
};

}  // namespace lockstep
