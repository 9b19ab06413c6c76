#include "trainers/run/hints.h"

#include <algorithm>
#include <utility>
#include <vector>

#include <ATen/core/Tensor.h>

#include "framework/base/range.h"
#include "framework/base/text.h"
#include "trainers/config/config_options.h"

namespace lockstep {

std::string late_text(const Config& config, std::int64_t steps) {
  std::vector<std::string> late;
  for (const auto& [key, every] : {std::pair{"trainer.log_every", config.trainer.log_every},
                                   std::pair{"trainer.eval_every", config.trainer.eval_every},
                                   std::pair{"checkpoint.every", config.checkpoint.every}}) {
    if (every > steps && config.places.contains(key)) late.push_back(str(key, " (", every, ")"));
  }
  if (late.empty()) return "";
  return str("the run has ", counted(steps, "step"), ", fewer than ", join(late), ": ",
             late.size() == 1 ? "this comes" : "these come", " at its end alone");
}

std::string parameters_text(const Config& config, const SampleType& sample, bool goes_on) {
  const bool has_file = config.init.from && !goes_on;
  if (config.trainer.freeze.empty() && !has_file) return "";
  const auto parameters = make_model(config, sample)->parameters();
  const auto trained =
      filtered(parameters, [](const at::Tensor& value) { return value.requires_grad(); });
  const std::int64_t all = sum_of(parameters, &at::Tensor::numel);
  std::string text = str("model: ", sum_of(trained, &at::Tensor::numel), " of ",
                         counted(all, "parameter"), " are trained");
  if (!has_file) return text;
  const auto& except = config.init.except;
  return str(text, "; weights of ", *config.init.from,
             except.empty() ? "" : str(", but ", listed(except), " of the model's own"));
}

std::string scale_text(const Objective& objective, const DataSets& data, const std::string& set,
                       const Figures& figures) {
  const Fitted& fitted = data.fitted;
  // Targets have names in tables alone, whose source can normalize them.
  const bool is_open = !fitted.targets.empty() && fitted.class_count == 0;
  const auto loss = figures.find("loss");
  if (!is_open || !fitted.target_scales.empty() || loss == figures.end()) return "";
  constexpr std::int64_t kEnough = 1000;
  const std::int64_t stride = ceil_div(data.train->size(), kEnough);
  const auto some = mapped(consecutive(std::int64_t{0}, ceil_div(data.train->size(), stride)),
                           [&](std::int64_t i) { return i * stride; });
  const at::Tensor targets = data.train->batch(some).targets;
  const double size = targets.square().mean().sqrt().item<double>();
  const at::Tensor mean = targets.mean(0, /*keepdim=*/true).expand_as(targets);
  const double usual = objective.loss->mean(mean, targets).item<double>();
  constexpr double kFar = 10;
  const bool is_above = loss->second > usual;  // of NaN nothing is
  if (!is_above || (size < kFar && size > 1 / kFar)) return "";
  return str("the ", set, " loss is above ", usual,
             ", which the targets' mean would have. Targets are about ", size,
             " in size: data.normalize_targets: true gives the model targets of mean 0 and "
             "deviation 1");
}

std::string busy_text(const CoreTime& time, double seconds, std::int64_t math_threads) {
  constexpr double kMuch = 0.25;  // of the time, each
  const double all = seconds * static_cast<double>(math_threads);
  if (time.waited_s < kMuch * all || time.ran_s > (1 - kMuch) * all) return "";
  return str(
      "other programs take the cores: in ", formatted("%.1f", seconds),
      " s this process' threads waited for one ", formatted("%.1f", time.waited_s),
      " s, and math threads wait for each other. parallel.threads_per_replica: 1 may be many "
      "times faster, and so may GOMP_SPINCOUNT=1000 in the environment, which keeps the bits");
}

std::string CoresWatch::text() {
  constexpr double kSome = 5;
  if (has_looked_) return "";
  const auto age = std::chrono::steady_clock::now() - begin_;
  const double seconds = std::chrono::duration<double>(age).count();
  if (seconds < kSome) return "";
  has_looked_ = true;
  const CoreTime now = core_time();
  return busy_text(
      {.ran_s = now.ran_s - before_.ran_s, .waited_s = now.waited_s - before_.waited_s}, seconds,
      math_threads_);
}

}  // namespace lockstep
