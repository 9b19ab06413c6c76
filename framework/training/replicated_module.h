#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <vector>

#include <ATen/core/Tensor.h>

#include "framework/axes/environment.h"
#include "framework/base/non_copyable.h"
#include "framework/timeline/recorder.h"
#include "framework/training/averaging_options.h"
#include "framework/training/evaluation_mode.h"
#include "framework/training/gradient_hooks.h"
#include "framework/training/module_buffers.h"
#include "framework/training/module_parameters.h"
#include "framework/training/random_draws.h"
#include "framework/training/same_gradients.h"

namespace lockstep::training {

/// What ZeroTrainer and DataParallel have in common: a module, or a tree's leaves, of which every
/// replica of an axis has one, and what keeps these alike. All start from replica 0's values; each
/// backward's gradients go to the trainer, one by one; draws at random, buffers, unused parameters
/// and replicas that repeat each other are watched.
class ReplicatedModule : private NonCopyable {
 public:
  /// A trainer's part of a backward, whichever way that was begun.
  class Receiver {
   public:
    /// `call` is what messages name. `loss` is undefined in a backward of the program's own, and
    /// where the replica has none.
    virtual void begin(const AxisCall& call, const at::Tensor& loss) = 0;
    virtual void add(std::size_t index, const at::Tensor& gradient) = 0;
    /// Returns whether the trainer's step ends with it.
    virtual bool end(bool has_loss) = 0;

   protected:
    ~Receiver() = default;
  };

  /// From now on the receiver gets all backwards. It and `parameters` must live as long; `options`
  /// are the trainer's. Throws ValueError for models that differ between replicas, and as the parts
  /// do. All replicas together.
  template <typename Options>
  ReplicatedModule(const ModuleParameters& parameters, const AxisCall& made, const Options& options,
                   Receiver& receiver)
      : parameters_(parameters),
        made_(made),
        receiver_(receiver),
        randomness_(options.randomness),
        takes_local_norms_(options.local_batch_norm),
        same_gradients_(options.may_repeat_samples, options.randomness, made.axes) {
    start(options.buffers, options.seed);
  }

  /// Of the values that parameters have now: see random_draws.h.
  void check_initialization() const;

  /// A backward of the trainer's own, of a loss that check_loss() has accepted, which counts as
  /// `options` say. Throws ValueError as check_still_all(), for a torch::nn::BatchNorm in training
  /// mode, and for numbers of samples that are negative or not finite.
  void backward(const at::Tensor& loss, const BackwardOptions& options, const AxisCall& call);
  /// Gives the receiver a gradient, which must be dense.
  void add(std::size_t index, const at::Tensor& gradient);
  /// From now on messages and the recorder know that step `number` is over.
  static void end_step(std::int64_t number);

  [[nodiscard]] ModuleBuffers& buffers() noexcept { return *buffers_; }
  [[nodiscard]] const ModuleBuffers& buffers() const noexcept { return *buffers_; }
  [[nodiscard]] RandomDraws& draws() noexcept { return *draws_; }
  [[nodiscard]] const RandomDraws& draws() const noexcept { return *draws_; }
  [[nodiscard]] UnusedParameters& unused() noexcept { return unused_; }
  [[nodiscard]] SameGradients& same_gradients() noexcept { return same_gradients_; }

 private:
  void start(Buffers rule, std::uint64_t seed);
  void check_batch_norms(const AxisCall& call) const;
  void begin(const AxisCall& call, const at::Tensor& loss, bool is_weighed);
  void tell_unequal_parts(bool is_weighed);
  void tell_modes();
  [[nodiscard]] bool end(bool has_loss);
  void end_others();
  [[nodiscard]] timeline::Recorder::Details recorded() const;

  const ModuleParameters& parameters_;
  AxisCall made_;
  Receiver& receiver_;
  Randomness randomness_;
  bool takes_local_norms_;
  SameGradients same_gradients_;
  UnusedParameters unused_;
  std::optional<GradientHooks> hooks_;
  std::optional<ModuleBuffers> buffers_;
  std::optional<RandomDraws> draws_;
  std::optional<AxisCall> call_;  // the current backward
  bool has_told_parts_ = false;
  bool has_begun_ = false;            // the first backward
  std::optional<ModuleModes> modes_;  // of a module, until a change is told
  // In a backward that counts nothing: what .grad() held before, by parameter.
  std::optional<std::vector<at::Tensor>> earlier_;
  std::uint64_t began_ = 0;  // that, if it is the program's own
};

}  // namespace lockstep::training
