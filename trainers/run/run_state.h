#pragma once

#include <cstdint>

#include <ATen/core/Tensor.h>

#include "framework/telemetry/metrics.h"
#include "framework/training/zero.h"

namespace lockstep {

/// Where a run is, between steps and in the midst of one. The same on all replicas, but for `loss`
/// of a step that is not logged.
struct RunState {
  std::int64_t steps = 0;      ///< done
  std::int64_t last_step = 0;  ///< of the run; before its course's end if it ends early
  std::int64_t course = 0;     ///< the steps of the whole run, also where it only stops
  std::int64_t samples = 0;    ///< of all replicas, in these steps: the sampler's position
  std::int64_t skipped_steps = 0;
  double lr = 0;          ///< of the last step
  StepReport report{};    ///< of the last step
  at::Tensor loss{};      ///< this replica's part of the last step's; where it is logged, of all
  bool is_logged = true;  ///< so `loss` is that of all replicas
  bool agrees = true;     ///< all replicas, as far as is known
  bool ends_now = false;  ///< a callback has asked for that

  /// The loss in as few digits as it has: one in a table's unit is in float64, others in float32.
  [[nodiscard]] double told_loss() const {
    return loss.scalar_type() == at::kDouble ? loss.item<double>()
                                             : shortest_decimal(loss.item<float>());
  }
  [[nodiscard]] bool is_last() const noexcept { return steps == last_step; }
  /// Whether what comes every so many steps comes now; 0: it never does.
  [[nodiscard]] bool is_each(std::int64_t every) const noexcept {
    return every > 0 && steps % every == 0;
  }
};

}  // namespace lockstep
