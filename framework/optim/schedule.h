#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <utility>
#include <vector>

namespace lockstep {

/// The curve between two learning rates: half a cosine or a line.
enum class Anneal { cosine, linear };

/// How the learning rate goes over a run, as a config's `schedule` section says it. Names are those
/// of torch.optim.lr_scheduler's classes' arguments, where these have them.
struct ScheduleOptions {
  std::string name = "constant";
  /// linear, cosine and one_cycle: the length of their curve, for who calls learning_rate(), which
  /// takes it as total_steps; none: the run's.
  std::optional<std::int64_t> steps{};
  std::int64_t warmup_steps = 0;            ///< all but one_cycle, which rises by itself
  double end_factor = 0;                    ///< linear: of the learning rate that it ends with
  double eta_min = 0;                       ///< cosine: the learning rate that it ends with
  std::int64_t step_size = 0;               ///< step: after so many steps, needed, …
  double gamma = 0.1;                       ///< … the learning rate is multiplied by this
  double pct_start = 0.3;                   ///< one_cycle: the part of the steps in which it rises
  double div_factor = 25;                   ///< one_cycle: begins with the learning rate / this …
  double final_div_factor = 1e4;            ///< … and ends with that / this
  Anneal anneal_strategy = Anneal::cosine;  ///< one_cycle

  bool operator==(const ScheduleOptions&) const = default;
};

/// The schedules that learning_rate knows: a name and a line of help each.
[[nodiscard]] const std::vector<std::pair<std::string, std::string>>& schedules();
[[nodiscard]] std::vector<std::string> schedule_names();

/// The learning rate of `step`, from 0, of `total_steps`. The step need not be whole: a run that
/// goes on with another batch size may stand between two. After a warm-up of W steps, in which the
/// rate is base_lr * (step + 1) / (W + 1), with t = step - W and T = total_steps - W it is
///
///   constant   base_lr
///   linear     base_lr * (1 + (end_factor - 1) * t / T)                 (LinearLR)
///   cosine     eta_min + (base_lr - eta_min) * (1 + cos(pi t / T)) / 2  (CosineAnnealingLR)
///   step       base_lr * gamma^floor(t / step_size)                     (StepLR)
///   one_cycle  OneCycleLR's, of two phases, whose max_lr is base_lr
///
/// Between two steps the same formulas hold: warm-up and curves go on evenly, StepLR's value stays
/// until t is the next multiple of step_size. Beyond the last step one_cycle has that step's rate.
/// At total_steps, where there is no step any more, linear and cosine are at their end.
///
/// Throws ValueError for an unknown name, for numbers outside their range, for an option that is
/// set but that this schedule doesn't have, unless 0 <= step <= total_steps, and where W is greater
/// than total_steps: a warm-up longer than the run.
[[nodiscard]] double learning_rate(const ScheduleOptions& options, double base_lr, double step,
                                   std::int64_t total_steps);

}  // namespace lockstep
