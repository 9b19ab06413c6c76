#pragma once

#include <cmath>
#include <cstdint>
#include <vector>

#include <ATen/core/Tensor.h>

#include "framework/telemetry/metrics.h"
#include "framework/training/zero.h"

namespace lockstep {

/// The mean of the losses of some steps, one by one in their order, so that it can be saved between
/// any two of them. Losses that are not finite are left out.
struct LossMean {
  double sum = 0;
  std::int64_t steps = 0;

  void add(double loss) {
    if (!std::isfinite(loss)) return;
    sum += loss;
    ++steps;
  }
  /// NaN where there was none.
  [[nodiscard]] double value() const { return sum / static_cast<double>(steps); }
};

/// Where a run is, between steps and in the midst of one. The same on all replicas, but for `loss`
/// in the midst of a step.
struct RunState {
  std::int64_t steps = 0;      ///< done
  std::int64_t last_step = 0;  ///< of the run; before its course's end if it ends early
  std::int64_t course = 0;     ///< the steps of the whole run, also where it only stops
  std::int64_t samples = 0;    ///< of all replicas, in these steps: the sampler's position
  std::int64_t skipped_steps = 0;
  double lr = 0;          ///< of the last step
  StepReport report{};    ///< of the last step
  at::Tensor loss{};      ///< the last step's, of all replicas; in its midst this replica's part
  LossMean losses{};      ///< of the steps since the last line that log_every has made
  bool is_logged = true;  ///< the last step has a line
  bool agrees = true;     ///< all replicas, as far as is known
  bool ends_now = false;  ///< a callback has asked for that

  /// After an update: each replica has told the others its part of the loss. With the bits that
  /// pmean() gives.
  void take_loss(const std::vector<double>& told);
  /// The last step's loss in as few digits as it has: one in a table's unit is in float64, others
  /// in float32. And the mean in as many.
  [[nodiscard]] double told_loss() const { return as_told(loss.item<double>()); }
  [[nodiscard]] double told_mean() const { return as_told(losses.value()); }
  [[nodiscard]] double as_told(double value) const {
    return loss.scalar_type() == at::kDouble ? value : shortest_decimal(static_cast<float>(value));
  }
  [[nodiscard]] bool is_last() const noexcept { return steps == last_step; }
  /// Whether what comes every so many steps comes now; 0: it never does.
  [[nodiscard]] bool is_each(std::int64_t every) const noexcept {
    return every > 0 && steps % every == 0;
  }
};

}  // namespace lockstep
