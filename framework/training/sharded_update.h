#pragma once

#include <algorithm>
#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include <ATen/core/Tensor.h>

#include "framework/optim/optimizer.h"
#include "framework/training/flat_gradients.h"
#include "framework/training/flat_parameters.h"

namespace lockstep::training {

/// What a replica says at a step.
struct StepVote {
  double lr = 0;
  bool has_bad_loss = false;          ///< a loss of the step was not finite
  bool has_replaced = false;          ///< the program has replaced parameters
  bool has_unused = false;            ///< parameters that no loss of the step depends on
  bool has_edited_gradients = false;  ///< the program has written the means that it was shown
};

/// What all of them say, in their order.
struct StepVotes {
  double gradient_norm = 0;
  std::vector<StepVote> votes;

  [[nodiscard]] bool any(bool StepVote::*what) const { return std::ranges::any_of(votes, what); }
};

/// The optimizer's work on what this replica updates: its shard of each bucket, or all of it.
class ShardedUpdate {
 public:
  /// `names` are those of the layout's parameters. The optimizer's state starts at zero, float32
  /// masters of half-type parameters at the parameters' values.
  ShardedUpdate(const OptimizerOptions& options, const tree::FlatLayout& layout,
                const std::vector<std::string>& names, const FlatParameters& parameters,
                const FlatGradients& gradients, const AxisNames& axis_name);

  /// Gives every replica's vote to all of them, and the L2 norm of all mean gradients times
  /// 2^-exponent, the same bits on every replica and however they are cut; infinite also where the
  /// squares are too large.
  [[nodiscard]] StepVotes exchange(const StepVote& own, int exponent = 0) const;
  /// That norm where it is finite, but not the squares. All replicas together.
  [[nodiscard]] double norm_of_large() const;
  /// The index of the first parameter whose mean gradient is not finite; nothing if all are.
  [[nodiscard]] std::optional<std::size_t> first_non_finite() const;

  /// Updates this replica's part, which the caller then publishes, with `common` settings; step and
  /// weight decay are the parameters' own. Those that are `skipped`, alike on all replicas, stay as
  /// they are, and their count of steps too.
  void update(const UpdateSettings& common, const std::vector<bool>& skipped);
  /// Parameters were given other values: masters follow.
  void refresh_masters(const std::vector<std::size_t>& parameters);

  /// Of the optimizer's state, masters with it.
  [[nodiscard]] std::int64_t bytes() const noexcept { return bytes_; }
  /// What that will be; `updates_all`: of all that the layout has, not of a shard.
  [[nodiscard]] static std::int64_t predicted_bytes(const OptimizerOptions& options,
                                                    const tree::FlatLayout& layout,
                                                    bool updates_all);

 private:
  struct Piece {
    std::size_t parameter;
    OptimizerSlice slice;
    ParameterSettings settings;
  };

  AxisNames axis_;
  std::unique_ptr<Optimizer> optimizer_;
  std::vector<std::int64_t> steps_;  // by parameter
  bool has_all_;
  std::vector<Piece> pieces_;
  std::int64_t bytes_ = 0;
};

}  // namespace lockstep::training
