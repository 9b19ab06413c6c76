#pragma once

#include <cstddef>
#include <cstdint>
#include <vector>

#include <ATen/core/Tensor.h>

#include "framework/training/bucket_sizes.h"
#include "framework/training/module_parameters.h"
#include "framework/training/sharded_update.h"
#include "framework/training/state.h"

namespace lockstep::training {

/// The exponential moving average of each parameter (of its master, where it has one) over the
/// updates: average += (1 - decay) (value - average), from the value before the first update. With
/// warm-up update t, from 0, decays by no more than (1 + t) / (10 + t), so that the average soon
/// forgets that value. Each replica keeps that of its own shard, at all stages. Its caller is not
/// recorded by autograd (TrainerCall).
class AveragedParameters {
 public:
  /// `module` has the plan's parameters, which `update` updates.
  /// `warms_up`: as ZeroOptions::ema_warmup.
  AveragedParameters(double decay, bool warms_up, const BufferPlan& plan,
                     const ModuleParameters& module, const ShardedUpdate& update,
                     const AxisNames& axis_name);

  /// Before an update: the average starts, unless it has.
  void start();
  /// After an update.
  void add();

  /// Fills `whole`, a bucket's size in the parameters' dtype, with averages. All replicas together.
  void gather_into(const at::Tensor& whole, std::size_t bucket);

  /// After the parameters. Restored, the average of what the source has no average of starts anew,
  /// which replica 0 logs. Averages that were saved without warm-up count the source's steps.
  void archive_state(const StateArchive& archive);

  [[nodiscard]] std::int64_t bytes() const { return total_bytes(shards_); }

 private:
  void take_values();

  struct Average {
    StatePiece piece;  // of the state: the average's values
    at::Tensor value;
  };
  double decay_;
  bool warms_up_;
  AxisNames axis_;
  std::vector<at::Tensor> shards_;  // by bucket: the averages, flat
  std::vector<Average> averages_;
  bool has_started_ = false;
  std::int64_t updates_ = 0;  // that the averages have seen
};

}  // namespace lockstep::training
