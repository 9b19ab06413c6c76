#include "trainers/run/trainer.h"

#include <algorithm>
#include <cmath>
#include <cstddef>
#include <exception>
#include <source_location>
#include <utility>

#include <ATen/ops/full.h>
#include <ATen/ops/zeros.h>
#include <ATen/ops/zeros_like.h>
#include <nlohmann/json.hpp>

#include "framework/base/errors.h"
#include "framework/base/memory.h"
#include "framework/base/range.h"
#include "framework/base/text.h"
#include "framework/checkpoint/weights.h"
#include "framework/collectives/axis_index.h"
#include "framework/launch/launch.h"
#include "framework/maps/machine.h"
#include "framework/maps/tensor_memory.h"
#include "framework/telemetry/digest.h"
#include "framework/telemetry/metrics.h"
#include "framework/telemetry/operator_spans.h"
#include "framework/timeline/recorder.h"
#include "framework/training/autocast.h"
#include "framework/training/uncounted_samples.h"
#include "framework/tree/error_place.h"
#include "trainers/config/config_options.h"
#include "trainers/run/best_step.h"
#include "trainers/run/course.h"
#include "trainers/run/evaluations.h"
#include "trainers/run/evaluator.h"
#include "trainers/run/hints.h"
#include "trainers/run/memory_report.h"
#include "trainers/run/microbatch_feed.h"
#include "trainers/run/operation_count.h"
#include "trainers/run/reporter.h"
#include "trainers/run/run_callbacks.h"
#include "trainers/run/run_checkpoints.h"
#include "trainers/run/run_report.h"
#include "trainers/run/run_result.h"
#include "trainers/run/run_state.h"

namespace lockstep {
namespace {

// The memory of this process before the first of its replicas has made a model.
std::size_t resident_at_start() {
  static const std::size_t bytes = resident_memory();
  return bytes;
}

// The config, if it is for as many replicas as run.
const Config& checked(const Config& config) {
  const std::int64_t replicas = axis_size(config.launch.axis_name);
  require(replicas == config.launch.replicas, "Trainer: the config says ",
          counted(config.launch.replicas, "replica"), ", and ", replicas, " run");
  return config;
}

std::unique_ptr<ZeroTrainer> make_trainer(const Config& config, Model& model, bool goes_on) {
  // A run that goes on has weights of its own.
  std::optional<Weights> weights;
  if (config.init.from && !goes_on) weights.emplace(*config.init.from);
  if (weights) {
    weights->leave_out(config.init.except);
    copy_weights(*weights, model);
  }
  return std::make_unique<ZeroTrainer>(model,
                                       zero_options(config, model, weights ? &*weights : nullptr),
                                       std::source_location::current());
}

// What all checkpoints of a run say. Replica 0 writes it.
CheckpointInfo record_of(const Config& config, const DataSets& data, const Course& course,
                         SetRecords sets, const ResumePoint* resume) {
  if (config.checkpoint.saves() && sets.empty() && axis_index(config.launch.axis_name) == 0) {
    sets = records_of(data);
  }
  CheckpointInfo info{
      .counts = {{kThreadsCount, maps::own_math_threads()},
                 {kSafeConvolutionsCount, kSafeConvolutions}},
      .texts = {{kConfigText, written(config, resume)}, {kVersionsText, versions_text()}}};
  add_course(course, info);
  Fitted fitted = data.fitted;
  if (!fitted.sample) fitted.sample = data.train->type();  // sets that load_data() did not make
  add_record({.fitted = std::move(fitted), .sets = std::move(sets)}, info);
  return info;
}

// Where a run ends that is to stop after a step: 0, at its course's end.
std::int64_t last_step_of(const Course& course, std::int64_t stop_after) {
  if (stop_after == 0) return course.total_steps;
  return std::clamp(stop_after, course.first_step, course.total_steps);
}

// Whether a model is small enough for its parameters to be printed.
bool is_readable(const Model& model) {
  return sum_of(model.parameters(), &at::Tensor::numel) <= 16;
}

}  // namespace

// The loop: begin(), step() by step(), finish(). The rest is what they do, in that order.
class Trainer::Run {
 public:
  Run(Trainer& own, const Config& config, const DataSets& data, RunOptions options)
      : config_(checked(config)),
        data_(data),
        options_(std::move(options)),
        resume_(options_.resume ? &*options_.resume : nullptr),
        objective_(make_objective(config, data.train->type(), data.fitted)),
        feed_(config, data, *objective_.loss),
        course_(course_of(config, data, resume_)),
        state_{.steps = course_.first_step,
               .last_step = last_step_of(course_, options_.stop_after),
               .course = course_.total_steps,
               .samples = course_.first_sample},
        model_(make_model(config, data.train->type())),
        zero_(make_trainer(config, *model_, /*goes_on=*/resume_ != nullptr)),
        evaluations_(config, data, objective_),
        reporter_(config, options_.output, options_.quiet, *data.train, course_.first_step,
                  /*writes=*/axis_index(config.launch.axis_name) == 0),
        callbacks_(options_.callbacks, own, *model_, reporter_),
        evaluator_(config, objective_, *model_, *zero_, reporter_),
        checkpoints_(
            config, options_.output, *zero_,
            [this, record = record_of(config, data, course_, options_.sets, resume_)] {
              return described(record);
            },
            [this] { reporter_.sync(); }) {
    if (reporter_.writes() && config.telemetry.report) report_.emplace(options_.output);
    if (resume_ != nullptr) go_on(*resume_);
    earlier_steps_ = zero_->last_step() - state_.steps;
  }

  void run() {
    try {
      bool is_stopped = begin();
      while (!is_stopped && state_.steps < state_.last_step) is_stopped = step();
      is_stopped ? stop() : finish();
    } catch (...) {
      rethrow_with(after_failure(std::current_exception()), reporter_.writes());
    }
  }

 private:
  friend class Trainer;

  // Restores what the checkpoint has.
  void go_on(const ResumePoint& point) {
    const CheckpointInfo info =
        load_checkpoint(point.checkpoint, {zero_.get()}, {.allow_differences = point.with_changes},
                        config_.launch.axis_name);
    require<DataError>(info.step == point.info.step, point.checkpoint.string(),
                       " was replaced since the run began");
    state_.skipped_steps = count_of(point, kSkippedCount);
    if (const auto sum = entry_of(info.figures, kLossSumFigure)) {
      state_.losses = {*sum, count_of(point, kLossStepsCount)};
    }
    // Where it is not known, it is not until the next step.
    const double loss = entry_of(info.figures, kLossFigure).value_or(std::nan(""));
    state_.loss = at::full({}, loss, objective_.scales.empty() ? at::kFloat : at::kDouble);
    evaluations_.go_on(info);
    if (evaluations_.are_without_progress()) state_.last_step = state_.course = state_.steps;
    checkpoints_.go_on(point.checkpoint, info);
    reporter_.go_on(config_, course_, point);
  }

  // Returns whether the run is to stop before its first step.
  bool begin() {
    if (is_readable(*model_)) {
      const auto whole = zero_->whole_parameters();
      reporter_.print_parameters("original parameters: ", *model_);
    }
    replica_hosts_ = hosts_of_replicas(config_.launch);
    // Of a folder that is gone the first line of metrics tells.
    std::error_code missing;
    if (reporter_.writes() && std::filesystem::exists(options_.output, missing)) {
      RunResult job = result_of_job(config_, resume_, options_.where);
      job.steps = state_.steps;
      job.replica_hosts = replica_hosts_;
      try {
        note_start(options_.output, job);
      } catch (const Error& error) {
        reporter_.warn(str("the run's start is not among its events: ", error.what()));
      }
    }
    reporter_.begin();
    if (config_.telemetry.operators) operators_.emplace();
    if (reporter_.writes() && maps::own_math_threads() > 1)
      cores_.emplace(maps::own_math_threads());
    if (options_.stop_after > course_.total_steps) {
      reporter_.print(str("--stop-after ", options_.stop_after, " is beyond the run's last step, ",
                          course_.total_steps, ": it ends there"));
    }
    if (resume_ == nullptr) hint(late_text(config_, course_.total_steps));
    if (state_.is_last()) {
      std::string why;
      if (stops_here()) why = str(": --stop-after is ", options_.stop_after);
      if (evaluations_.are_without_progress()) why = ": " + evaluations_.progress_text();
      reporter_.print("there is no step left to train" + why);
      // The checkpoint may be one on the way, which has no figures.
      for (const std::string& set : {kValidationSet, kTestSet}) {
        if (!stops_here() && evaluations_.of(set, state_.steps).empty()) evaluations_.owe(set);
      }
    }
    // The run that has saved the checkpoint did not come to them.
    if (state_.is_last() || evaluations_.owes(kValidationSet) || evaluations_.owes(kTestSet) ||
        checkpoints_.owes_best()) {
      if (conclude()) return true;
    }
    reporter_.note(state_);
    if (!state_.is_last()) {
      rate_ = rate_of(config_, course_);
      feed_.request(state_.samples);
    }
    callbacks_.before_first_step(state_);
    return false;
  }

  // One step with what follows it. Returns whether the run is to stop.
  bool step() {
    checkpoints_.before_step();
    reporter_.make_room();
    {
      const auto span = recorded(timeline::SpanKind::step, state_.steps + 1);
      train();
    }
    if (resume_ != nullptr && state_.steps == course_.first_step + 1) {
      const std::string change = waive_half_sums(*resume_);
      if (!change.empty()) reporter_.print("  " + change);
    }
    const bool is_logged = state_.is_last() || state_.is_each(config_.trainer.log_every);
    const bool is_due = state_.is_each(config_.trainer.eval_every);
    if (is_due || (state_.is_last() && !stops_here())) evaluations_.owe_both();
    is_logged ? log() : reporter_.note(state_);
    reporter_.add_histograms(state_.steps, "parameters",
                             [&](const auto& visit) { zero_->visit_parameters(visit); });
    if (cores_) hint(cores_->text());
    bool is_stopped = false;
    reporter_.leave_out([&] {
      callbacks_.after_step(state_, axis_index(config_.launch.axis_name));
      if (state_.ends_now) evaluations_.owe_both();
      is_stopped = conclude();
    });
    return is_stopped;
  }

  // One update from the next global batch.
  void train() {
    const AutocastScope no_casts(at::kFloat);  // a callback may have left others on
    const Sampler& sampler = feed_.sampler();
    const std::int64_t global_batch = sampler.global_batch(state_.samples);
    const std::int64_t end = sampler.end_of_step(state_.samples);
    // The next step's batches are made during this one.
    if (state_.steps + 1 < state_.last_step) feed_.request(end);
    placed([&] { return str("step ", state_.steps + 1); },
           [&] { feed_.begin_step(state_.samples); });
    state_.loss = at::zeros({});
    state_.is_logged = false;
    // The second step shows what all take: the first also makes what stays.
    const bool is_measured = state_.steps == course_.first_step + 1;
    const auto next = [&] {
      return placed([&] { return microbatch_text(); }, [&] { return feed_.next(); });
    };
    while (const auto batch = next()) {
      std::optional<maps::TensorMemory> memory;
      if (is_measured) memory.emplace();
      const bool is_first = state_.steps == course_.first_step && feed_.microbatch() == 0;
      std::optional<OperationCount> operations;
      if (is_first && reporter_.writes()) operations.emplace();
      const BatchLoss local =
          placed([&] { return microbatch_text(); }, [&] { return loss_of(*batch); });
      if (operations) {
        const auto samples = static_cast<double>(batch->tensors.inputs.size(0));
        reporter_.note_operations(
            static_cast<double>(operations->multiply_adds()) / samples,
            config_.trainer.precision == Precision::bf16 ? at::kBFloat16 : at::kFloat);
        operations.reset();
      }
      zero_->backward(local.trained, {.samples = batch->weight, .of = batch->step_weight});
      if (memory) memory_.activations = memory->peak();
      if (is_first) tell_scores(local.scores);
      state_.loss = state_.loss.add(local.told);
    }
    state_.lr = rate_(state_.steps);
    reporter_.add_histograms(state_.steps + 1, "gradients",
                             [&](const auto& visit) { zero_->visit_gradients(visit); });
    update();
    state_.take_loss(zero_->told_numbers());
    state_.samples = end;
    ++state_.steps;
    if (state_.report.skipped && ++state_.skipped_steps == 1) {
      reporter_.warn(str("step ", state_.steps, " is skipped: ", state_.report.reason,
                         " (said once; skipped_steps counts them)"));
    }
    if (state_.is_each(config_.trainer.check_every)) {
      state_.agrees = false;
      zero_->check_agreement();
      state_.agrees = true;
    }
    reporter_.count(global_batch, zero_->own_seconds(), zero_->link_rates());
  }

  // A model with more scores than there are classes trains, but never needs the rest of them.
  void tell_scores(std::int64_t scores) {
    const std::int64_t classes = data_.train->type().classes;
    if (classes == 0 || scores <= classes) return;
    reporter_.warn(str("the model has ", scores, " outputs, and the data have ",
                       counted(classes, "class", "classes"),
                       ": a model of one's own takes the number from SampleType::outputs()"));
  }

  // "step 3", with several microbatches "step 3, microbatch 1": what is trained now, for messages.
  [[nodiscard]] std::string microbatch_text() const {
    const std::int64_t number = feed_.microbatch();
    return str("step ", state_.steps + 1,
               microbatches(config_) > 1 ? str(", microbatch ", number) : "");
  }

  [[nodiscard]] static timeline::RecordedSpan recorded(timeline::SpanKind kind, std::int64_t step) {
    return {timeline::track_here, {.kind = kind, .id = static_cast<std::uint64_t>(step)}};
  }

  // A microbatch's mean loss, and this replica's part of the step's loss that is told: the mean
  // over replicas of the sums over microbatches.
  BatchLoss loss_of(const Microbatch& batch) {
    const auto span = recorded(timeline::SpanKind::forward, state_.steps + 1);
    std::optional<UncountedSamples> uncounted;
    if (batch.samples == 0) uncounted.emplace();
    const BatchLoss mean =
        training_loss(config_, objective_, *model_, batch.tensors, [&] { return feed_.samples(); });
    const double weight =
        training::sample_weight(batch.weight, batch.step_weight, config_.launch.replicas);
    if (weight == 1) return mean;
    const at::Tensor told = weight > 0 ? mean.told * weight : at::zeros_like(mean.told);
    return {mean.trained, told, mean.scores};
  }

  // Where the loss or a gradient is not finite since samples are not, these are told: the learning
  // rate is not to blame.
  void update() {
    const std::int64_t step = state_.steps + 1;
    const double loss = state_.loss.item<double>();
    const bool is_finite = std::isfinite(loss);
    zero_->tell_number(loss);
    if (stop_requested()) zero_->tell(kToldStop);
    if (!is_finite) feed_.check_samples("the loss", step);
    try {
      state_.report = zero_->step(state_.lr);
    } catch (const NonFiniteStep&) {
      if (is_finite) feed_.check_samples("a gradient", step);
      // A replica that has found such a sample ends this wait with its error.
      barrier(config_.launch.axis_name);
      throw;
    }
    if (state_.report.skipped && is_finite) feed_.check_samples("a gradient", step);
  }

  void log() {
    state_.is_logged = true;
    const double value = state_.loss.item<double>();
    require<Error>(std::isfinite(value) || config_.zero.non_finite == NonFinite::skip,
                   "the loss is ", value, " at step ", state_.steps,
                   "; training has diverged: try a smaller optimizer.lr or a trainer.clip_norm");
    const RunState logged = state_;
    // A line that is only there because the run ends or stops is none for a run that goes on. One
    // that can't be written is the checkpoint's.
    if (state_.is_each(config_.trainer.log_every)) state_.losses = {};
    reporter_.log(logged);
  }

  // Evaluates and saves after the last step that was done. Returns whether the run is to stop.
  bool conclude() {
    if (state_.ends_now) end_here();
    // A signal leaves no time for evaluations: the run that goes on makes those that are owed.
    const bool is_told = !state_.is_last() && (state_.report.told_by_any & kToldStop) != 0;
    if (is_told || !evaluate_owed()) {
      if (state_.is_last()) {
        checkpoints_.save_last(state_);
      } else if (checkpoints_.last_step() != state_.steps) {
        checkpoints_.save();
      }
      return true;
    }
    if (state_.is_last()) return false;
    const std::int64_t saved = checkpoints_.last_step();
    checkpoints_.after_step(state_);
    if (report_ && checkpoints_.last_step() != saved) {
      report_->begin(str("after step ", state_.steps, " of ", course_.total_steps));
    }
    return false;
  }

  // Returns whether all that is owed is done: a signal may end it. Where the run only stops, both
  // sets are looked at: what is not owed decides nothing.
  bool evaluate_owed() {
    const auto is_to_come = [&, looks = stops_here()](const std::string& set, const auto& data) {
      if (evaluations_.owes(set)) return true;
      return looks && data != nullptr && evaluations_.of(set, state_.steps).empty();
    };
    if (is_to_come(kValidationSet, data_.validation) &&
        !evaluate_on(kValidationSet, *data_.validation)) {
      return false;
    }
    if (!state_.is_last() && (state_.ends_now || evaluations_.are_without_progress())) {
      end_here();
      if (!state_.ends_now) {
        reporter_.print(str("step ", state_.steps, ": ", evaluations_.progress_text(),
                            ": trainer.patience ends the run"));
      }
    }
    // On the way the test set is looked at only where there is no other, and decides nothing.
    if (!state_.is_last() && data_.validation) evaluations_.drop(kTestSet);
    if (is_to_come(kTestSet, data_.test) && !evaluate_on(kTestSet, *data_.test)) return false;
    if (state_.ends_now) end_here();  // as a callback of that evaluation says
    return true;
  }

  // Whether the run only stops, as RunOptions::stop_after says: it can go on.
  [[nodiscard]] bool stops_here() const {
    return options_.stop_after > 0 && state_.steps >= options_.stop_after &&
           state_.steps < course_.total_steps && !state_.ends_now &&
           !evaluations_.are_without_progress();
  }

  void end_here() {
    state_.last_step = state_.course = state_.steps;
    if (!state_.is_logged) log();
  }

  // If the validation set's figure is better than that of all checkpoints before, this step's is to
  // be the best. Returns whether it comes to its end: a signal may ask the run to stop.
  bool evaluate_on(const std::string& set, const Dataset& data) {
    if (state_.is_last()) checkpoints_.save_last(state_);
    const auto [figures, trained, record] =
        placed([&] { return str("in the evaluation on the ", set, " set, step ", state_.steps); },
               [&] {
                 const auto span = recorded(timeline::SpanKind::evaluation, state_.steps);
                 return evaluator_.evaluated(state_, set, data);
               });
    if (figures.empty()) return false;
    const bool decides =
        set == kValidationSet && config_.checkpoint.best != "none" && evaluations_.owes(set);
    checkpoints_.note_evaluation(decides ? evaluations_.better(figures, checkpoints_.best())
                                         : std::nullopt);
    note_record(set, record);
    const bool is_best = evaluations_.note(set, figures, state_.steps);
    const ParameterValues weights = evaluated_values(config_);
    reporter_.tell_evaluation(state_, set, figures, trained, weights);
    callbacks_.after_evaluation(state_, {state_.steps, set, figures, is_best, weights});
    return true;
  }

  void note_record(const std::string& set, const nlohmann::ordered_json& record) {
    if (report_ && !record.is_null()) report_->note_evaluation(set, record);
  }

  // What a checkpoint of now says.
  CheckpointInfo described(const CheckpointInfo& record) {
    CheckpointInfo info = record;
    info.step = state_.steps;
    info.counts[kSamplesCount] = state_.samples;
    info.counts[kSkippedCount] = state_.skipped_steps;
    info.figures[kElapsedFigure] = reporter_.elapsed_s();
    if (resume_ != nullptr && !resume_->waived.empty()) info.texts[kWaivedText] = resume_->waived;
    if (state_.is_last()) info.figures[kLossFigure] = state_.loss.item<double>();
    if (state_.losses.steps > 0) {
      info.figures[kLossSumFigure] = state_.losses.sum;
      info.counts[kLossStepsCount] = state_.losses.steps;
    }
    evaluations_.add_to(info);
    reporter_.add_to(info);
    return info;
  }

  // After an error: saves the last step that all have done. Returns a line for the error's end.
  std::string after_failure(const std::exception_ptr& error) {
    const std::int64_t steps = zero_->last_step() - earlier_steps_;
    if (steps == course_.first_step) return "";
    // It may have failed between the update and the count.
    if (steps > state_.steps) {
      state_.samples = feed_.sampler().end_of_step(state_.samples);
      state_.take_loss(zero_->told_numbers());
    }
    state_.steps = steps;
    return checkpoints_.save_after_failure(error, state_);
  }

  void hint(const std::string& text) {
    if (!text.empty()) reporter_.print(text);
  }

  // Ends the run where it is, since a signal asks for that.
  void stop() {
    checkpoints_.finish();
    reporter_.finish_line();
    if (report_)
      report_->finish(str("stopped after step ", state_.steps, " of ", course_.total_steps));
    tell_stop();
  }

  void tell_stop() {
    std::string what = ", without a checkpoint";
    if (!config_.checkpoint.saves()) what += ": checkpoint.save is none";
    if (checkpoints_.last_step() == state_.steps) {
      what =
          str(", with a checkpoint: --output ", options_.output.string(), " --resume auto goes on");
    }
    reporter_.print(str("stopped after step ", state_.steps, " of ", course_.total_steps, what));
  }

  // Where the run only stops, the whole run may have no evaluation: see conclude().
  [[nodiscard]] std::string words_of_best() const {
    if (!stops_here()) return "best ";
    return state_.is_each(config_.trainer.eval_every)
               ? "best so far, "
               : "best so far (the evaluation of a stop does not count), ";
  }

  // The test set by the best step's weights and, if the report `shows` it, the validation set.
  void evaluate_best(BestStep& best, bool shows) {
    const auto span = recorded(timeline::SpanKind::evaluation, best.step);
    const auto model = model_of_best(
        config_, data_, best.checkpoint.empty() ? "" : options_.output / best.checkpoint);
    if (!model) return;
    RunState then = state_;
    then.steps = then.last_step = best.step;
    const auto evaluated = [&](const std::string& set, const Dataset& data) {
      auto its = evaluator_.evaluated(*model, then, set, data);
      note_record(set, its.record);
      return its.figures;
    };
    if (shows) (void)evaluated(kValidationSet, *data_.validation);
    if (data_.test) best.test = evaluated(kTestSet, *data_.test);
  }

  // The best step, with its weights' figures of the test set.
  std::optional<BestStep> conclude_best() {
    auto best = best_step_of(config_, options_.output, resume_, checkpoints_, evaluations_);
    // The same on all replicas, whatever of the checkpoint one can read.
    if (!checkpoints_.best()) return best;
    bool is_known = false;
    if (data_.test) {
      best->test = evaluations_.of(kTestBest, best->step);
      is_known = !best->test.empty();
      if (!is_known) best->test = evaluations_.of(kTestSet, best->step);
    }
    // The report is to show what the weights do that are kept.
    const bool shows = config_.telemetry.report && best->step != state_.steps;
    if (shows || (data_.test && best->test.empty())) evaluate_best(*best, shows);
    if (best->test.empty()) return best;
    // A kill may have come before its line, which a checkpoint of today would have.
    if (is_known && state_.steps == course_.first_step) {
      const auto lines = entry_of(resume_->info.texts, kMetricsText);
      if (!lines || lines->find("\"best_step\"") != std::string::npos) return best;
    }
    reporter_.note_best(state_, *best, evaluated_values(config_));
    checkpoints_.note_evaluation(std::nullopt);
    (void)evaluations_.note(kTestBest, best->test, best->step);
    checkpoints_.save_last(state_);
    return best;
  }

  void finish() {
    checkpoints_.save_last(state_);
    memory_.checkpoint = checkpoints_.staged_bytes();
    const MemoryReport memory = memory_report(config_, data_, *zero_, memory_);
    const std::optional<BestStep> best = conclude_best();
    ParametersDigest digest;
    zero_->visit_parameters([&](const std::string& name, const at::Tensor& value) {
      if (reporter_.writes()) digest.add(name, value);
    });
    const auto whole = is_readable(*model_) ? zero_->whole_parameters() : nullptr;
    if (!reporter_.writes()) return;
    reporter_.finish_line();
    if (whole) reporter_.print_parameters("updated parameters:  ", *model_);
    const auto buffers = buffer_map(*model_);
    RunResult result = result_of_job(config_, resume_, options_.where);
    result.steps = state_.last_step;
    result.replica_hosts = replica_hosts_;
    result.skipped_steps = state_.skipped_steps;
    result.loss = state_.told_loss();
    result.eval = evaluations_.of(kTestSet, state_.steps);
    result.validation = evaluations_.of(kValidationSet, state_.steps);
    result.best = best;
    if (config_.zero.ema_decay) result.weights = name_of(evaluated_values(config_));
    if (whole) result.parameters = parameter_map(*model_);
    result.parameters_sha256 = digest.finish();
    if (!buffers.empty()) result.buffers_sha256 = parameters_sha256(buffers);
    result.memory = memory;
    reporter_.finish(result, words_of_best());
    if (report_) report_->finish();
    checkpoints_.check_last(evaluations_.have_decided());
    if (stops_here()) {
      tell_stop();
    } else {
      const std::string& set = data_.test ? kTestSet : kValidationSet;
      hint(scale_text(objective_, data_, set, evaluations_.of(set, state_.steps)));
    }
    reporter_.print("results in           " + options_.output.string());
  }

  std::optional<telemetry::OperatorSpans> operators_;
  std::optional<CoresWatch> cores_;  // of the replica that tells, if it has several math threads
  ReplicaMemory memory_{.resident_at_start = resident_at_start()};
  const Config& config_;
  const DataSets& data_;
  RunOptions options_;
  ResumePoint* resume_;  // nullptr: the run begins
  Objective objective_;
  MicrobatchFeed feed_;
  Course course_;
  std::function<double(std::int64_t step)> rate_;  // while steps are left
  RunState state_;
  std::shared_ptr<Model> model_;
  std::unique_ptr<ZeroTrainer> zero_;
  Evaluations evaluations_;
  Reporter reporter_;
  RunCallbacks callbacks_;
  Evaluator evaluator_;
  RunCheckpoints checkpoints_;       // its last work uses the reporter
  std::optional<RunReport> report_;  // of the replica that writes, as the config says
  std::int64_t earlier_steps_;       // that ZeroTrainer counts beside the run's
  std::vector<std::int64_t> replica_hosts_;
};

Trainer::Trainer(const Config& config, const DataSets& data, RunOptions options)
    : run_(std::make_unique<Run>(*this, config, data, std::move(options))) {}

Trainer::~Trainer() = default;

void Trainer::run() {
  run_->run();
}

void Trainer::end_after_step() {
  run_->state_.ends_now = true;
}

const Config& Trainer::config() const {
  return run_->config_;
}

Model& Trainer::model() {
  return *run_->model_;
}

SummaryWriter* Trainer::summary() {
  return run_->reporter_.summary();
}

ZeroTrainer& Trainer::zero() {
  return *run_->zero_;
}

}  // namespace lockstep
