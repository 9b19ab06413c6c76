#pragma once

#include <cstdint>
#include <functional>
#include <optional>
#include <string>

#include <ATen/core/Tensor.h>

#include "framework/axes/axis_names.h"
#include "framework/keys/key.h"
#include "framework/optim/optimizer_options.h"
#include "framework/training/averaging_options.h"

namespace lockstep {

/// What happens when a gradient is infinite or not a number: an Error that names its parameter, or
/// a step that changes nothing.
enum class NonFinite { stop, skip };

/// What its numbers may be.
inline const keys::Rule<int> kStageRule = keys::from_to(0, 3);
inline const keys::Rule<std::int64_t> kAccumulateRule = keys::kMillion;
inline const keys::Rule<double> kClipRule = keys::kPositive;
inline const keys::Rule<double> kEmaDecayRule = keys::kPartBelow1;

struct ZeroOptions {
  AxisNames axis_name = "data";
  /// What is cut into shards, of which each replica holds one: 0 nothing; 1 the optimizer's state;
  /// 2 also the gradients; 3 also the parameters.
  int stage = 0;
  std::optional<double> bucket_mb{};  ///< see kBucketMbRule
  Overlap overlap = Overlap::automatic;
  /// Whether step() returns, at stages 1 and 2 where it overlaps over a network, while the updated
  /// parameters of Blocks are under way: each Block waits for its own ones when it runs. So they
  /// travel during the next forward. Until they have come they are on the meta device; what is said
  /// of stage 3 below then holds: read them by the trainer, and end with release_parameters().
  bool late_parameters = false;
  /// Backwards a step.
  std::int64_t accumulate = 1;
  /// Reduce after each backward. This saves memory at stages 2 and 3 and sends `accumulate` times
  /// the bytes. Otherwise each replica sums its own gradients first.
  bool reduce_every_microbatch = false;
  Compression compression = Compression::none;
  OptimizerOptions optimizer{};
  std::optional<double> clip_norm{};   ///< the gradients' largest global L2 norm; infinity: any
  std::optional<double> clip_value{};  ///< a gradient's largest magnitude; infinity: any
  NonFinite non_finite = NonFinite::stop;
  /// Keeps an exponential moving average of the parameters, which
  /// ZeroTrainer::averaged_parameters() shows: each step it moves by 1 - ema_decay of its distance
  /// to the new values, from the values before the first step. Each replica keeps its share, at all
  /// stages. Buffers are not averaged.
  std::optional<double> ema_decay{};
  /// Whether update t, from 0, decays by min(ema_decay, (1 + t) / (10 + t)): with ema_decay alone
  /// the average of a short run consists mostly of the values that it began with.
  bool ema_warmup = true;
  /// Keeps what ZeroTrainer::visit_last_step() needs: a copy of the buffers, and one of what
  /// compression has left out.
  bool keeps_last_step = false;
  Buffers buffers = Buffers::mean;
  /// Whether torch::nn::BatchNorm may train on several replicas: it normalizes by each replica's
  /// own samples, and its running statistics follow `buffers`. Otherwise it is a ValueError;
  /// lockstep::BatchNorm normalizes by the samples of all replicas.
  bool local_batch_norm = false;
  std::uint64_t seed = 0;  ///< of what KeyedModules and LibTorch's operators draw
  Randomness randomness = Randomness::warn;
  /// Whether all replicas may have the same samples. Otherwise one warning says where several
  /// steps' gradients were the same bits on all of them, or a ValueError where randomness is
  /// strict.
  bool may_repeat_samples = false;
  /// For a module in deferred form, whose parameters (all, or some) are on the meta device: makes
  /// the first values of the parameter `name`, whole. The trainer's constructor calls it for each
  /// parameter of which this replica holds a part, and keeps that part. So at stage 3 over a
  /// network a replica starts with its share of the Blocks' parameters and one whole parameter at a
  /// time.
  ///
  ///   Layer::Layer(int in, int out)  // a Block
  ///       : weight_(register_parameter("weight", at::empty({out, in}, at::device(at::kMeta)))),
  ///         linear_(register_module("linear", torch::nn::Linear(out, out))) {
  ///     defer(*linear_);  // deferred_parameters.h
  ///   }
  ///   ...
  ///   options.initialize = [&](const std::string& name) {
  ///     return seeded(Key(seed).fold(name).bits(), [&] { return at::randn(shapes.at(name)); });
  ///   };
  ///
  /// The values are a dense floating tensor of the parameter's shape on the CPU, and depend on the
  /// name alone (the first, if there are several). Give float32 for half types, too: the masters
  /// then start from values that are not rounded. Buffers are not deferred.
  std::function<at::Tensor(const std::string& name)> initialize{};
};

/// Throws ValueError, naming it, for a number out of range.
void check_options(const ZeroOptions& options);

}  // namespace lockstep
