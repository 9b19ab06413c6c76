#include "trainers/run/run_checkpoints.h"

#include <random>
#include <utility>

#include <ATen/ops/zeros.h>

#include "framework/base/errors.h"
#include "framework/base/logging.h"
#include "framework/collectives/axis_index.h"
#include "framework/collectives/psum.h"
#include "trainers/run/resume.h"

namespace lockstep {

namespace {

// A number that no other run has, the same on all replicas.
std::uint64_t drawn_together(const AxisNames& axis) {
  const at::Tensor drawn = at::zeros({}, at::kLong);
  if (axis_index(axis) == 0) {
    std::random_device source;
    drawn.fill_((static_cast<std::int64_t>(source()) << 31) ^ source());
  }
  return static_cast<std::uint64_t>(psum(drawn, axis).item<std::int64_t>());
}

}  // namespace

RunCheckpoints::RunCheckpoints(const Config& config, const std::filesystem::path& output,
                               ZeroTrainer& trainer, std::function<void()> before_publish)
    : options_(config.checkpoint),
      axis_(config.launch.axis_name),
      trainer_(trainer),
      saver_(checkpoints_of(output), {.keep = options_.keep,
                                      .before_publish = std::move(before_publish),
                                      .axis_name = axis_,
                                      .meeting = drawn_together(axis_)}) {}

bool RunCheckpoints::is_due(std::int64_t steps) const {
  return options_.save == CheckpointOptions::Save::state && options_.every > 0 &&
         steps % options_.every == 0;
}

void RunCheckpoints::before_step() {
  if (saver_.is_ready()) trainer_.tell(kToldReady);
}

void RunCheckpoints::after_step(const StepReport& report) {
  if ((report.told_by_all & kToldReady) != 0) attempt([&] { saver_.advance(); });
}

void RunCheckpoints::save(CheckpointInfo info, std::optional<double> figure) {
  if (options_.save == CheckpointOptions::Save::none) return;
  finish();
  now_.last_step = info.step;
  if (figure) {
    now_.best = figure;
    now_.best_step = info.step;
  }
  add_best(now_, info);
  attempt([&] {
    saver_.begin({&trainer_}, info, figure.has_value());
    if (!options_.async) saver_.finish();
  });
}

void RunCheckpoints::amend(CheckpointInfo info, std::optional<double> figure) {
  if (options_.save == CheckpointOptions::Save::none) return;
  now_.last_step = info.step;
  if (figure) {
    now_.best = figure;
    now_.best_step = info.step;
  }
  add_best(now_, info);
  attempt([&] { saver_.amend(info, figure.has_value()); });
}

CheckpointSaver::Apart RunCheckpoints::save_apart(CheckpointInfo info,
                                                  const std::string& why) noexcept {
  add_best(now_, info);
  return saver_.save_apart([&](const VisitState& visit) { trainer_.visit_last_step(visit); }, info,
                           why);
}

void RunCheckpoints::add_best(const Saved& saved, CheckpointInfo& info) const {
  if (!saved.best) return;
  info.figures[kBestFigures + options_.best] = *saved.best;
  info.counts[kBestCount] = saved.best_step;
}

void RunCheckpoints::go_on(const CheckpointInfo& info) {
  const auto figure = info.figures.find(kBestFigures + options_.best);
  const auto step = info.counts.find(kBestCount);
  if (figure == info.figures.end() || step == info.counts.end()) return;
  now_.best = figure->second;
  now_.best_step = step->second;
  whole_ = now_;
}

void RunCheckpoints::finish() {
  attempt([&] { saver_.finish(); });
}

void RunCheckpoints::attempt(const std::function<void()>& work) {
  try {
    work();
    if (!saver_.pending()) whole_ = now_;
  } catch (const CommError&) {
    throw;
  } catch (const Error& error) {
    now_ = whole_;
    have_failed_ = options_.on_error == CheckpointOptions::OnError::stop;
    if (have_failed_) throw;
    if (axis_index(axis_) == 0) log_warning(error.what());
  }
}

}  // namespace lockstep
