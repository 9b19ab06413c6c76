#include "framework/optim/schedule.h"

#include <algorithm>
#include <cmath>
#include <numbers>

#include "framework/base/text.h"

namespace lockstep {
namespace {

// In the order of schedules().
enum class Curve { constant, linear, cosine, step, one_cycle };

// From `start` to `end` as `part` goes from 0 to 1, along half a cosine or a line.
double annealed(Anneal strategy, double start, double end, double part) {
  if (strategy == Anneal::linear) return start + (end - start) * part;
  return end + (start - end) * (1 + std::cos(std::numbers::pi * part)) / 2;
}

// torch's phases end at steps counted from 0, hence the -1. One that is empty is at its end.
double one_cycle(const ScheduleOptions& options, double max_lr, double step, double total_steps) {
  step = std::min(step, total_steps - 1);
  const Anneal strategy = options.anneal_strategy;
  const double first_lr = max_lr / options.div_factor;
  const double last_lr = first_lr / options.final_div_factor;
  const double peak = options.pct_start * total_steps - 1;
  if (step <= peak) return annealed(strategy, first_lr, max_lr, peak > 0 ? step / peak : 1);
  const double length = total_steps - 1 - peak;
  return annealed(strategy, max_lr, last_lr, length > 0 ? (step - peak) / length : 1);
}

// The curve that checked options name.
Curve curve_of(const ScheduleOptions& options) {
  const std::vector<std::string> names = schedule_names();
  const auto found = std::ranges::find(names, options.name);
  if (found == names.end()) {
    throw ValueError(str("unknown schedule '", options.name, "'", did_you_mean(options.name, names),
                         "; known are ", join(names)));
  }
  const auto curve = static_cast<Curve>(found - names.begin());
  const auto check = [&](const char* name, auto ScheduleOptions::*option, bool is_its, bool holds,
                         const char* rule) {
    require(is_its || options.*option == ScheduleOptions().*option, "schedule ", options.name, ": ",
            name, " is not an option of it");
    const auto number = static_cast<double>(options.*option);
    require(!is_its || (holds && std::isfinite(number)), "schedule ", options.name, ": ", name,
            " must be ", rule, ", not ", number);
  };
  using enum Curve;
  using Options = ScheduleOptions;
  require(!options.steps || curve == linear || curve == cosine || curve == one_cycle, "schedule ",
          options.name, ": steps is not an option of it");
  check("warmup_steps", &Options::warmup_steps, curve != one_cycle, options.warmup_steps >= 0,
        "at least 0");
  check("end_factor", &Options::end_factor, curve == linear, options.end_factor >= 0, "at least 0");
  check("eta_min", &Options::eta_min, curve == cosine, options.eta_min >= 0, "at least 0");
  check("step_size", &Options::step_size, curve == step, options.step_size >= 1, "at least 1");
  check("gamma", &Options::gamma, curve == step, options.gamma > 0, "above 0");
  check("pct_start", &Options::pct_start, curve == one_cycle,
        options.pct_start >= 0 && options.pct_start <= 1, "from 0 to 1");
  check("div_factor", &Options::div_factor, curve == one_cycle, options.div_factor > 0, "above 0");
  check("final_div_factor", &Options::final_div_factor, curve == one_cycle,
        options.final_div_factor > 0, "above 0");
  check("anneal_strategy", &Options::anneal_strategy, curve == one_cycle, true, "");
  return curve;
}

}  // namespace

const std::vector<std::pair<std::string, std::string>>& schedules() {
  static const std::vector<std::pair<std::string, std::string>> all{
      {"constant", "the same in all steps"},
      {"linear", "falls along a line"},
      {"cosine", "falls along half a cosine"},
      {"step", "falls by a factor every so many steps"},
      {"one_cycle",
       "rises to its full value, then falls far below where it began (arXiv:1708.07120)"}};
  return all;
}

std::vector<std::string> schedule_names() {
  std::vector<std::string> names;
  for (const auto& [name, help] : schedules()) names.push_back(name);
  return names;
}

double learning_rate(const ScheduleOptions& options, double base_lr, double step,
                     std::int64_t total_steps) {
  const Curve curve = curve_of(options);
  require(step >= 0 && step <= static_cast<double>(total_steps), "learning_rate: step ", step,
          " is not one of 0 to ", total_steps);
  require(options.warmup_steps <= total_steps, "schedule ", options.name, ": warmup_steps is ",
          options.warmup_steps, ", but the run has ", counted(total_steps, "step"));
  const auto warmup = static_cast<double>(options.warmup_steps);
  if (step < warmup) return base_lr * ((step + 1) / (warmup + 1));
  const double t = step - warmup;
  const double total = static_cast<double>(total_steps) - warmup;
  const double part = total > 0 ? t / total : 1;
  if (curve == Curve::linear) return base_lr * (1 + (options.end_factor - 1) * part);
  if (curve == Curve::cosine) return annealed(Anneal::cosine, base_lr, options.eta_min, part);
  if (curve == Curve::step) {
    const double falls = std::floor(t / static_cast<double>(options.step_size));
    return base_lr * std::pow(options.gamma, falls);
  }
  if (curve == Curve::one_cycle) return one_cycle(options, base_lr, t, total);
  return base_lr;
}

}  // namespace lockstep
