#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include <ATen/core/Tensor.h>

#include "framework/optim/optimizer.h"
#include "framework/optim/parameter_groups.h"
#include "framework/training/flat_gradients.h"
#include "framework/training/flat_parameters.h"

namespace lockstep {

/// The optimizer's work on what this replica updates: its shard of each bucket, or all of it.
class ShardedUpdate {
 public:
  /// `names` are those of the layout's parameters. The optimizer's state starts at zero, float32
  /// masters of half-type parameters at the parameters' values.
  ShardedUpdate(const OptimizerOptions& options, const FlatLayout& layout,
                const std::vector<std::string>& names, const FlatParameters& parameters,
                const FlatGradients& gradients, const AxisNames& axis_name);

  /// The L2 norm of all mean gradients, the same bits on every replica and however they are cut.
  /// `is_bad` becomes true on all replicas if it is on any; where each updates everything nothing
  /// is exchanged, and it stays as it is.
  [[nodiscard]] double gradient_norm(bool& is_bad) const;
  /// The index of the first parameter whose mean gradient is not finite; nothing if all are.
  [[nodiscard]] std::optional<std::size_t> first_non_finite() const;

  struct Settings {
    std::int64_t step;  ///< from 1
    double lr;
    double gradient_scale;
    std::optional<double> clip_value;
  };
  /// Updates this replica's part: to be published.
  void update(const Settings& settings);

  /// Of the optimizer's state, masters with it.
  [[nodiscard]] std::int64_t bytes() const noexcept { return bytes_; }

 private:
  struct Piece {
    std::size_t parameter;
    OptimizerSlice slice;
    ParameterSettings settings;
  };
  void add_bucket(const OptimizerOptions& options, const FlatLayout& layout, std::size_t bucket,
                  const std::vector<std::string>& names, const FlatParameters& parameters,
                  const FlatGradients& gradients, std::int64_t replica);

  AxisNames axis_;
  std::unique_ptr<Optimizer> optimizer_;
  bool has_all_;
  std::vector<Piece> pieces_;
  std::int64_t bytes_ = 0;
};

}  // namespace lockstep
