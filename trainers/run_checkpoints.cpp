#include "trainers/run_checkpoints.h"

#include <utility>

#include "framework/base/errors.h"
#include "framework/base/logging.h"
#include "framework/collectives/axis_index.h"
#include "trainers/resume.h"

namespace lockstep {

RunCheckpoints::RunCheckpoints(const Config& config, const std::filesystem::path& output,
                               ZeroTrainer& trainer, std::function<void()> before_publish)
    : options_(config.checkpoint),
      axis_(config.launch.axis_name),
      trainer_(trainer),
      saver_(checkpoints_of(output), {.keep = options_.keep,
                                      .before_publish = std::move(before_publish),
                                      .axis_name = axis_}) {}

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

void RunCheckpoints::save(const CheckpointInfo& info, bool is_best) {
  if (options_.save == CheckpointOptions::Save::none) return;
  finish();
  attempt([&] {
    saver_.begin({&trainer_}, info, is_best);
    last_step_ = info.step;
    if (!options_.async) saver_.finish();
  });
}

void RunCheckpoints::finish() {
  attempt([&] { saver_.finish(); });
}

void RunCheckpoints::attempt(const std::function<void()>& work) {
  try {
    work();
    if (!saver_.pending()) saved_step_ = last_step_;
  } catch (const CommError&) {
    throw;
  } catch (const Error& error) {
    last_step_ = saved_step_;
    if (options_.on_error == CheckpointOptions::OnError::stop) throw;
    if (axis_index(axis_) == 0) log_warning(error.what());
  }
}

}  // namespace lockstep
