#include "trainers/run/run_checkpoints.h"

#include <random>
#include <system_error>
#include <utility>

#include <ATen/ops/zeros.h>

#include "framework/base/errors.h"
#include "framework/base/logging.h"
#include "framework/base/text.h"
#include "framework/collectives/axis_index.h"
#include "framework/collectives/psum.h"
#include "framework/data/data.h"
#include "framework/maps/first_failure.h"
#include "framework/storage/checkpoint_folder.h"
#include "framework/tree/error_place.h"
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

// How a run that ended by `error` and has saved its state goes on, for people.
std::string how_to_go_on(const std::exception_ptr& error, const std::filesystem::path& output) {
  // Mended data are others than those that the checkpoint has recorded.
  const bool are_mended = error_kind(error) == ErrorKind::data;
  return str(are_mended ? "once the data are mended, " : "", "--output ", output.string(),
             " --resume auto ", are_mended ? "--resume-with-changes " : "", "goes on");
}

// The newest checkpoint from which a run goes on that could not save its state, for people.
std::string what_is_left(const std::filesystem::path& output) {
  const auto steps = storage::CheckpointFolder(checkpoints_of(output)).steps();
  if (steps.empty()) return "there is no checkpoint";
  return str("--output ", output.string(), " --resume auto goes on after step ", steps.front());
}

}  // namespace

RunCheckpoints::RunCheckpoints(const Config& config, const std::filesystem::path& output,
                               ZeroTrainer& trainer, std::function<CheckpointInfo()> describe,
                               std::function<void()> before_publish)
    : options_(config.checkpoint),
      axis_(config.launch.axis_name),
      output_(output),
      trainer_(trainer),
      describe_(std::move(describe)),
      saver_(checkpoints_of(output), {.keep = options_.keep,
                                      .before_publish = std::move(before_publish),
                                      .axis_name = axis_,
                                      .meeting = drawn_together(axis_)}) {}

void RunCheckpoints::go_on(const std::filesystem::path& checkpoint, const CheckpointInfo& info) {
  std::error_code missing;
  if (std::filesystem::equivalent(checkpoint.parent_path(), checkpoints_of(output_), missing)) {
    now_.last_step = info.step;
  }
  owed_best_ = entry_of(info.figures, kOwesBestFigure);
  has_news_ = owed_best_.has_value();
  const auto figure = entry_of(info.figures, kBestFigures + options_.best);
  const auto step = entry_of(info.counts, kBestCount);
  if (figure && step) {
    now_.best = figure;
    now_.best_step = *step;
  }
  whole_ = now_;
}

void RunCheckpoints::before_step() {
  if (saver_.is_ready()) trainer_.tell(kToldReady);
}

void RunCheckpoints::after_step(const RunState& state) {
  if ((state.report.told_by_all & kToldReady) != 0) attempt([&] { saver_.advance(); });
  const bool is_due = options_.saves() && state.is_each(options_.every);
  if (owed_best_ || is_due) save();
}

void RunCheckpoints::save() {
  if (!options_.saves()) return;
  finish();
  save_as([&](const CheckpointInfo& info, bool is_best) {
    saver_.begin({&trainer_}, info, is_best);
    if (!options_.async) saver_.finish();
  });
}

void RunCheckpoints::save_last(const RunState& state) {
  if (!options_.saves() || !unsaved_.empty()) return;
  try {
    const bool is_there = now_.last_step == state.last_step;
    if (!is_there && !std::exchange(has_tried_last_, true)) {
      save();
    } else if (is_there && has_news_) {
      save_as([&](const CheckpointInfo& info, bool is_best) { saver_.amend(info, is_best); });
    }
    has_news_ = false;
    finish();
  } catch (const CommError&) {
    throw;
  } catch (const Error& error) {
    unsaved_ = error.what();
  }
}

void RunCheckpoints::finish() {
  attempt([&] { saver_.finish(); });
}

void RunCheckpoints::check_last(bool have_decided) const {
  if (!unsaved_.empty()) throw Error(unsaved_);
  if (!options_.saves() || !have_decided || options_.best == "none" || best()) return;
  log_warning(str("checkpoint.best: the ", kValidationSet, " set's ", options_.best,
                  " was never a number, so there is no best checkpoint"));
}

std::string RunCheckpoints::save_after_failure(const std::exception_ptr& error,
                                               const RunState& state) {
  if (!options_.saves() || have_failed_) return "";
  const std::string saved =
      str("the state after step ", state.steps, " is saved: ", how_to_go_on(error, output_));
  const std::string unsaved = str("the state after step ", state.steps, " can't be saved: ");
  try {
    if (whole_.last_step == state.steps && !saver_.pending()) return saved;
    if (lacks_replica(error)) {
      return str(unsaved, "a replica that has a part of it is late or lost; ",
                 what_is_left(output_));
    }
    if (!state.agrees) return unsaved + "replicas may differ in it";
    CheckpointInfo info = describe_();
    if (owed_best_) info.figures[kOwesBestFigure] = *owed_best_;
    add_best(info);
    const CheckpointSaver::Apart apart =
        saver_.save_apart([&](const VisitState& visit) { trainer_.visit_last_step(visit); }, info,
                          maps::typed_text(error));
    return apart.is_saved ? saved : unsaved + apart.reason;
  } catch (const std::exception& another) {
    return unsaved + another.what();
  }
}

void RunCheckpoints::save_as(
    const std::function<void(const CheckpointInfo& info, bool is_best)>& save) {
  CheckpointInfo info = describe_();
  const std::optional<double> best = std::exchange(owed_best_, std::nullopt);
  now_.last_step = info.step;
  if (best) {
    now_.best = best;
    now_.best_step = info.step;
  }
  add_best(info);
  attempt([&] { save(info, best.has_value()); });
}

void RunCheckpoints::add_best(CheckpointInfo& info) const {
  if (!now_.best) return;
  info.figures[kBestFigures + options_.best] = *now_.best;
  info.counts[kBestCount] = now_.best_step;
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

bool lacks_replica(const std::exception_ptr& error) {
  // Aborted: it may only have thrown.
  const ErrorKind kind = error_kind(error);
  return kind == ErrorKind::comm || kind == ErrorKind::lost || kind == ErrorKind::timeout;
}

void rethrow_with(const std::string& note, bool logs) {
  if (note.empty()) throw;
  const std::exception_ptr handled = std::current_exception();
  try {
    throw;
  } catch (const NonFiniteStep& error) {
    throw NonFiniteStep(str(error.what(), "\n", note));
  } catch (const Error& error) {
    if (error.kind() == ErrorKind::aborted) throw;  // another replica's error is the cause
    if (is_plain(error)) rethrow_as(handled, str(error.what(), "\n", note));
    if (logs) log_warning(note);
    throw;
  } catch (...) {
    rethrow_as(handled, str(maps::text_of(handled), "\n", note));
  }
}

}  // namespace lockstep
