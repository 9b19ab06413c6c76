#include "framework/optim/schedule.h"

#include <algorithm>
#include <cmath>
#include <numbers>
#include <vector>

#include "framework/base/text.h"
#include "framework/keys/key_table.h"

namespace lockstep {
namespace {

// From `start` to `end` as `part` goes from 0 to 1, along half a cosine or a line.
double annealed(Anneal strategy, double start, double end, double part) {
  if (strategy == Anneal::linear) return start + (end - start) * part;
  return end + (start - end) * (1 + std::cos(std::numbers::pi * part)) / 2;
}

double constant_rate(const ScheduleOptions& /*options*/, const ScheduleStep& at) {
  return at.base_lr;
}

keys::ConfigKeys linear_keys(ScheduleOptions& options) {
  return {{"end_factor", number(options.end_factor, keys::kNotNegative),
           "the learning rate at the end, in parts of optimizer.lr"}};
}

double linear_rate(const ScheduleOptions& options, const ScheduleStep& at) {
  return at.base_lr * (1 + (options.end_factor - 1) * at.part());
}

keys::ConfigKeys cosine_keys(ScheduleOptions& options) {
  return {{"eta_min", number(options.eta_min, keys::kNotNegative), "the learning rate at the end"}};
}

double cosine_rate(const ScheduleOptions& options, const ScheduleStep& at) {
  return annealed(Anneal::cosine, at.base_lr, options.eta_min, at.part());
}

keys::ConfigKeys step_keys(ScheduleOptions& options) {
  return {{"step_size",
           number(options.step_size, keys::at_least<std::int64_t>(1)),
           "after each so many steps the learning rate is multiplied by gamma",
           {.required = true}},
          {"gamma", number(options.gamma, keys::kPositive), "see schedule.step_size"}};
}

double step_rate(const ScheduleOptions& options, const ScheduleStep& at) {
  const double falls = std::floor(at.step / static_cast<double>(options.step_size));
  return at.base_lr * std::pow(options.gamma, falls);
}

keys::ConfigKeys one_cycle_keys(ScheduleOptions& options) {
  return {{"pct_start", number(options.pct_start, keys::kPart),
           "the part of the steps in which the learning rate rises"},
          {"div_factor", number(options.div_factor, keys::kPositive),
           "the first learning rate is optimizer.lr divided by this"},
          {"final_div_factor", number(options.final_div_factor, keys::kPositive),
           "the last learning rate is the first divided by this"},
          {"anneal_strategy", keys::one_of(options.anneal_strategy, {"cos", "linear"}),
           "the learning rate goes along half a cosine or a line"}};
}

// torch's phases end at steps counted from 0, hence the -1. One that is empty is at its end.
double one_cycle_rate(const ScheduleOptions& options, const ScheduleStep& at) {
  const double step = std::min(at.step, at.steps - 1);
  const Anneal strategy = options.anneal_strategy;
  const double first_lr = at.base_lr / options.div_factor;
  const double last_lr = first_lr / options.final_div_factor;
  const double peak = options.pct_start * at.steps - 1;
  if (step <= peak) return annealed(strategy, first_lr, at.base_lr, peak > 0 ? step / peak : 1);
  const double length = at.steps - 1 - peak;
  return annealed(strategy, at.base_lr, last_lr, length > 0 ? (step - peak) / length : 1);
}

// The schedules that have what all of this kind have.
std::vector<std::string> owners(bool ScheduleKind::*has) {
  std::vector<std::string> names = schedule_registry().names();
  std::erase_if(names, [&](const auto& name) { return !(schedule_registry().at(name).*has); });
  return names;
}

}  // namespace

bool operator==(ScheduleOptions a, ScheduleOptions b) {
  return keys::key_values({schedule_section(a)}) == keys::key_values({schedule_section(b)});
}

keys::Section schedule_section(ScheduleOptions& options) {
  keys::Section section{
      "schedule",
      {
          {"name",
           keys::one_of(options.name, schedule_registry().names()),
           "how the learning rate goes over a run",
           {.is_short_form = true}},
          {"steps",
           number_or_null(options.steps, keys::kBillion),
           "the curve's length; then the learning rate stays at its end; null: the run's",
           {.owners = owners(&ScheduleKind::has_end), .may_change = true}},
          {"warmup_steps",
           number(options.warmup_steps, keys::kNatural),
           "steps in which the learning rate rises to its full value",
           {.owners = owners(&ScheduleKind::warms_up)}},
      }};
  add_choices(section, options, schedule_registry().choices(), section.keys.size());
  return section;
}

namespace {

keys::Registry<ScheduleKind>& known_schedules() {
  // A new schedule is a file of its own and a line here.
  static keys::Registry<ScheduleKind> kinds(
      "schedule",
      {{{"constant", "the same in all steps", [](ScheduleOptions&) { return keys::ConfigKeys(); }},
        constant_rate,
        /*has_end=*/false},
       {{"linear", "falls along a line", linear_keys}, linear_rate},
       {{"cosine", "falls along half a cosine", cosine_keys}, cosine_rate},
       {{"step", "falls by a factor every so many steps", step_keys}, step_rate, /*has_end=*/false},
       {{"one_cycle",
         "rises to its full value, then falls far below where it began (arXiv:1708.07120)",
         one_cycle_keys},
        one_cycle_rate,
        /*has_end=*/true,
        /*warms_up=*/false}});
  return kinds;
}

}  // namespace

const keys::Registry<ScheduleKind>& schedule_registry() {
  return known_schedules();
}

void register_schedule(ScheduleKind kind) {
  known_schedules().add(std::move(kind));
}

double learning_rate(const ScheduleOptions& options, double base_lr, double step,
                     std::int64_t total_steps) {
  return LearningRate(options, base_lr, total_steps).at(step);
}

LearningRate::LearningRate(ScheduleOptions options, double base_lr, std::int64_t total_steps)
    : options_(std::move(options)),
      kind_(&schedule_registry().at(options_.name)),
      base_lr_(base_lr),
      total_steps_(total_steps) {
  ScheduleOptions defaults;
  keys::check_section(schedule_section(options_), schedule_section(defaults));
  require(options_.warmup_steps <= total_steps, "schedule ", options_.name, ": warmup_steps is ",
          options_.warmup_steps, ", but the run has ", counted(total_steps, "step"));
}

double LearningRate::at(double step) const {
  const auto steps = static_cast<double>(total_steps_);
  require(step >= 0 && step <= steps, "learning_rate: step ", step, " is not one of 0 to ",
          total_steps_);
  const auto warmup = static_cast<double>(options_.warmup_steps);
  if (step < warmup) return base_lr_ * ((step + 1) / (warmup + 1));
  const double rate =
      kind_->rate(options_, {.base_lr = base_lr_, .step = step - warmup, .steps = steps - warmup});
  require(std::isfinite(rate) && rate >= 0, "schedule ", options_.name,
          ": the learning rate after ", step, " steps must be finite and at least 0, not ", rate);
  return rate;
}

}  // namespace lockstep
