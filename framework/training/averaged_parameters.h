#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
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
  /// `module` has the plan's parameters, which `update` updates; it must live as long.
  /// `warms_up`: as ZeroOptions::ema_warmup.
  AveragedParameters(double decay, std::optional<bool> warms_up, const BufferPlan& plan,
                     const ModuleParameters& module, const ShardedUpdate& update,
                     const AxisNames& axis_name);

  /// Before an update: the average starts, unless it has.
  void start();
  /// After an update.
  void add();

  /// Fills `whole`, a bucket's size in the parameters' dtype, with averages. All replicas together.
  void gather_into(const at::Tensor& whole, std::size_t bucket);

  /// After the parameters. Restored, the average of what the source has no average of starts anew,
  /// and averages without a count go on without warm-up, unless asked for; replica 0 logs both.
  void archive_state(const StateArchive& archive);

  [[nodiscard]] std::int64_t bytes() const { return total_bytes(shards_); }

 private:
  void take_values();
  void restore_count(const StateArchive& archive, bool is_new);

  struct Average {
    StatePiece piece;  // of the state: the average's values
    at::Tensor value;
  };
  const ModuleParameters& module_;
  double decay_;
  std::optional<bool> asked_;  // to warm up, or not to
  bool warms_up_ = asked_.value_or(true);
  AxisNames axis_;
  std::vector<at::Tensor> shards_;  // by bucket: the averages, flat
  std::vector<Average> averages_;
  bool has_started_ = false;
  std::int64_t updates_ = 0;  // that the averages have seen
};

}  // namespace lockstep::training
