#pragma once

#include <algorithm>
#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include <ATen/core/Tensor.h>

#include "framework/optim/optimizers.h"
#include "framework/timeline/slow_link.h"
#include "framework/training/flat_gradients.h"
#include "framework/training/flat_parameters.h"
#include "framework/training/module_parameters.h"
#include "framework/training/state.h"

namespace lockstep::training {

/// What a replica tells the others at a step.
struct StepVote {
  double lr = 0;
  double loss = 0;                    ///< the sum of the step's losses
  bool has_replaced = false;          ///< the program has replaced parameters
  bool has_unused = false;            ///< parameters that no loss of the step depends on
  bool has_edited_gradients = false;  ///< the program has written the means that it was shown
  std::uint32_t told = 0;             ///< flags of the program's own
  std::uint64_t gradients = 0;        ///< of SameGradients
  double number = 0;                  ///< of the program's own, too
  double own_seconds = 0;             ///< of timeline::OwnWork, since the last step's vote
  timeline::ToldRate link{};          ///< of timeline::IncomingRates
};

/// The votes of all replicas, in their order.
struct StepVotes {
  double gradient_norm = 0;
  std::vector<StepVote> votes;

  [[nodiscard]] bool any(bool StepVote::*what) const { return std::ranges::any_of(votes, what); }
};

/// The optimizer's work on what this replica updates: see FlatParameters::own().
class ShardedUpdate {
 public:
  /// `module` has the plan's parameters. The optimizer's state starts at zero; float32 masters of
  /// half-type parameters start at the parameters' values.
  ShardedUpdate(const OptimizerOptions& options, const BufferPlan& plan,
                const ModuleParameters& module, const FlatParameters& parameters,
                const FlatGradients& gradients, const AxisNames& axis_name);

  /// Gives every replica all votes, and the L2 norm of all mean gradients times 2^-exponent. The
  /// norm has the same bits on every replica and however gradients are cut. It is infinite also if
  /// the squares are too large.
  [[nodiscard]] StepVotes exchange(const StepVote& own, int exponent = 0) const;
  /// The norm if it is finite although the squares are too large. All replicas together.
  [[nodiscard]] double norm_of_large() const;
  /// The index of the first parameter whose mean gradient is not finite; nothing if all are.
  [[nodiscard]] std::optional<std::size_t> first_non_finite() const;

  /// Updates this replica's part with `common` settings; the caller then publishes it. Step and
  /// weight decay are each parameter's own. Parameters that are `skipped` (alike on all replicas)
  /// stay as they are, and so does their count of steps.
  void update(const UpdateSettings& common, const std::vector<bool>& skipped);
  /// Sets the masters of `parameters` that were given other values.
  void refresh_masters(const std::vector<std::size_t>& parameters);

  /// A part of a parameter's values (of its master, where it has one) that lies in this replica's
  /// shard: `offset` is in elements of the parameter. It shares the memory that is updated.
  struct SavedPart {
    std::size_t parameter;
    std::int64_t offset;
    at::Tensor values;
  };
  [[nodiscard]] std::vector<SavedPart> saved_parts() const;

  /// The parameters' values (masters where there are such) and the optimizer's state: saves this
  /// replica's part, and restores all that it updates. The caller then publishes it.
  void archive_state(const StateArchive& archive);

  /// Bytes of the optimizer's state, with masters.
  [[nodiscard]] std::int64_t bytes() const noexcept { return bytes_; }

 private:
  struct Piece {
    std::size_t parameter;
    OptimizerSlice slice;
    ParameterSettings settings;
    std::int64_t offset;  // of the slice, from the parameter's start
    Range saved;          // the part of the slice that this replica saves
  };

  std::vector<std::string> names_;
  std::vector<std::vector<std::int64_t>> shapes_;
  AxisNames axis_;
  std::unique_ptr<Optimizer> optimizer_;
  std::vector<std::int64_t> steps_;  // by parameter
  bool has_all_;
  std::vector<Piece> pieces_;
  std::int64_t bytes_ = 0;
};

}  // namespace lockstep::training
