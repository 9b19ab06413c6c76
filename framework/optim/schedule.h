#pragma once

#include <cstdint>
#include <functional>
#include <optional>
#include <string>
#include <utility>

#include "framework/keys/choice.h"

namespace lockstep {

/// The curve between two learning rates: half a cosine or a line.
enum class Anneal { cosine, linear };

/// How the learning rate goes over a run, as a config's `schedule` section says it. Names are those
/// of torch.optim.lr_scheduler's classes' arguments, where these have them.
struct ScheduleOptions {
  std::string name = "constant";  ///< of schedule_registry()
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
  /// Of all other schedules: `options.own.of<PolynomialOptions>("polynomial").power = 2`.
  keys::ChoiceOptions own = {};

  friend bool operator==(ScheduleOptions a, ScheduleOptions b);
};

/// A config's section `schedule`, with the keys of all schedules that are known.
[[nodiscard]] keys::Section schedule_section(ScheduleOptions& options);

/// A step behind the warm-up.
struct ScheduleStep {
  double base_lr = 0;  ///< of the optimizer
  double step = 0;     ///< that are done behind the warm-up: from 0 to `steps`, not always whole
  double steps = 0;    ///< with a warm-up fewer than the run's

  /// From 0 to 1.
  [[nodiscard]] double part() const { return steps > 0 ? step / steps : 1; }
};

/// A schedule that a config can name, with its options' keys.
struct ScheduleKind : keys::ChoiceIn<ScheduleOptions> {
  /// The learning rate, finite and at least 0.
  std::function<double(const ScheduleOptions& options, const ScheduleStep& at)> rate;
  bool has_end = true;   ///< has ScheduleOptions::steps
  bool warms_up = true;  ///< has ScheduleOptions::warmup_steps
};

/// A ScheduleKind from two functions of its options, which ScheduleOptions::own holds.
template <typename Options>
[[nodiscard]] ScheduleKind schedule_kind(std::string name, std::string help,
                                         keys::ConfigKeys (*keys)(Options& options),
                                         double (*rate)(const Options& options,
                                                        const ScheduleStep& at)) {
  return {keys::own_choice<ScheduleOptions>(
              keys::choice<Options>(std::move(name), std::move(help), keys)),
          [rate](const ScheduleOptions& options, const ScheduleStep& at) {
            return rate(options.own.of<Options>(options.name), at);
          }};
}

/// A ScheduleKind without options.
[[nodiscard]] inline ScheduleKind schedule_kind(
    std::string name, std::string help, std::function<double(const ScheduleStep& at)> rate) {
  return {keys::own_choice<ScheduleOptions>(keys::choice(std::move(name), std::move(help))),
          [rate = std::move(rate)](const ScheduleOptions& /*options*/, const ScheduleStep& at) {
            return rate(at);
          }};
}

/// Lets configs and learning_rate() name a schedule. Before they are used, for one thread: first
/// thing in main(). ValueError for a name that is there already.
void register_schedule(ScheduleKind kind);

/// All schedules that are known.
[[nodiscard]] const keys::Registry<ScheduleKind>& schedule_registry();

/// The learning rate after `step` of `total_steps`, from 0: that of the step which metrics,
/// messages and callbacks call step + 1. It need not be whole: a run that goes on with another
/// batch size may stand between two. After a warm-up of W steps, in which the rate is base_lr *
/// (step + 1) / (W + 1), with t = step - W and T = total_steps - W it is
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
/// Throws ValueError for an unknown name, for values that schedule_section() would refuse, for an
/// option that is set but that this schedule doesn't have, unless 0 <= step <= total_steps, where W
/// is greater than total_steps (a warm-up longer than the run), and for a rate that is negative or
/// not finite. A loop over steps takes a LearningRate.
[[nodiscard]] double learning_rate(const ScheduleOptions& options, double base_lr, double step,
                                   std::int64_t total_steps);

/// learning_rate() of a run's steps, whose options are checked once.
///
///   const LearningRate rate({.name = "cosine", .warmup_steps = 100}, 1e-3, steps);
///   for (std::int64_t step = 0; step < steps; ++step) trainer.step(rate.at(step));
class LearningRate {
 public:
  LearningRate(ScheduleOptions options, double base_lr, std::int64_t total_steps);

  [[nodiscard]] double at(double step) const;

 private:
  ScheduleOptions options_;
  const ScheduleKind* kind_;  // in the registry
  double base_lr_;
  std::int64_t total_steps_;
};

}  // namespace lockstep
