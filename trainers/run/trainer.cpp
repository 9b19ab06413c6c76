#include "trainers/run/trainer.h"

#include <algorithm>
#include <chrono>
#include <cmath>
#include <cstdio>
#include <deque>
#include <exception>
#include <limits>
#include <map>
#include <memory>
#include <optional>
#include <source_location>
#include <system_error>
#include <utility>
#include <vector>

#include <ATen/ops/full.h>
#include <ATen/ops/zeros.h>

#include "framework/base/errors.h"
#include "framework/base/logging.h"
#include "framework/base/memory.h"
#include "framework/base/range.h"
#include "framework/base/text.h"
#include "framework/checkpoint/weights.h"
#include "framework/collectives/axis_index.h"
#include "framework/collectives/psum.h"
#include "framework/data/finite.h"
#include "framework/data/loader.h"
#include "framework/data/sampler.h"
#include "framework/replicas/first_failure.h"
#include "framework/replicas/launch.h"
#include "framework/replicas/machine.h"
#include "framework/telemetry/digest.h"
#include "framework/telemetry/metrics.h"
#include "framework/telemetry/progress.h"
#include "framework/training/safe_convolutions.h"
#include "framework/training/tensor_memory.h"
#include "framework/training/uncounted_samples.h"
#include "trainers/config/config_options.h"
#include "trainers/run/course.h"
#include "trainers/run/evaluations.h"
#include "trainers/run/memory_report.h"
#include "trainers/run/run_checkpoints.h"
#include "trainers/run/run_errors.h"
#include "trainers/run/run_result.h"

namespace lockstep {
namespace {

using Clock = std::chrono::steady_clock;

double seconds_since(Clock::time_point start) {
  return std::chrono::duration<double>(Clock::now() - start).count();
}

// The memory of this process before the first of its replicas has made a model.
std::size_t resident_at_start() {
  static const std::size_t bytes = resident_memory();
  return bytes;
}

bool is_in_folder(const std::filesystem::path& path, const std::filesystem::path& folder) {
  std::error_code missing;
  return std::filesystem::equivalent(path.parent_path(), folder, missing);
}

}  // namespace

class Trainer::Run {
 public:
  Run(Trainer& own, const Config& config, const DataSets& data, RunOptions options)
      : own_(own),
        config_(config),
        data_(data),
        options_(std::move(options)),
        axis_(config.launch.axis_name),
        replicas_(axis_size(axis_)),
        replica_(axis_index(axis_)),
        resume_(options_.resume ? &*options_.resume : nullptr),
        objective_(make_objective(config, data.train->type())),
        sampler_(sampler_options(config, data, replicas_)),
        course_(course_of(config, data, replicas_, sampler_, resume_)),
        last_step_(course_.total_steps),
        microbatches_(microbatches(config, replicas_)),
        loader_(*data.train, loader_options(config, *data.train)),
        model_(make_model(config, data.train->type())),
        named_(parameter_map(*model_)),
        evaluations_(config, objective_) {
    require(replicas_ == config.launch.replicas, "Trainer: the config says ",
            counted(config.launch.replicas, "replica"), ", and ", replicas_, " run");
    // A run that goes on has weights of its own.
    std::optional<Weights> weights;
    if (config.init.from && resume_ == nullptr) weights.emplace(*config.init.from);
    if (weights) copy_weights(*weights, *model_);
    zero_ = std::make_unique<ZeroTrainer>(
        *model_, zero_options(config, *model_, weights ? &*weights : nullptr),
        std::source_location::current());
    if (replica_ == 0) reporter_ = std::make_unique<Reporter>(options_);
    // Replica 0 writes what checkpoints say.
    const bool saves = config.checkpoint.save != CheckpointOptions::Save::none;
    if (reporter_ && saves && options_.sets.empty()) options_.sets = records_of(data);
    checkpoints_ = std::make_unique<RunCheckpoints>(config, options_.output, *zero_, [this] {
      if (reporter_) reporter_->metrics.sync();
    });
    if (resume_ != nullptr) go_on(*resume_);
    steps_at_start_ = zero_->last_step();
    counted_steps_ = course_.first_step;
    is_saved_ = resume_ != nullptr && course_.first_step == last_step_ &&
                is_in_folder(resume_->checkpoint, checkpoints_of(options_.output));
  }

  [[nodiscard]] const Config& config() const { return config_; }
  [[nodiscard]] Model& model() { return *model_; }
  [[nodiscard]] ZeroTrainer& zero() { return *zero_; }
  void end_after_step() { ends_now_ = true; }

  void run() {
    try {
      run_steps();
    } catch (...) {
      rethrow_with(after_failure(std::current_exception()), replica_ == 0);
    }
  }

 private:
  void run_steps() {
    if (is_readable()) {
      const auto whole = zero_->whole_parameters();
      print_parameters("original parameters: ");
    }
    line_begin_ = Clock::now();
    begin_ = line_begin_ - std::chrono::duration_cast<Clock::duration>(elapsed_before_);
    if (course_.first_step == last_step_) {
      if (reporter_) {
        reporter_->progress.print(
            str("there is no step left to train",
                evaluations_.are_without_progress() ? ": " + evaluations_.progress_text() : ""));
      }
      // The checkpoint may be one on the way, which has no figures of the test set.
      owes_.test = owes_.test || evaluations_.of(kTestSet).empty();
    }
    // The run that has saved the checkpoint did not come to them.
    if (owes_.validation || owes_.test || owed_best_) conclude(course_.first_step - 1, owes_);
    note_progress(course_.first_step);
    if (course_.first_step < last_step_) request(samples_);
    if (options_.callbacks.before_first_step) options_.callbacks.before_first_step(own_);
    for (std::int64_t step = course_.first_step; step < last_step_; ++step) {
      const bool is_stopped = train(step);
      if (is_stopped) return stop(step);
    }
    finish();
  }

  // The output of replica 0; the other replicas have none.
  struct Reporter {
    explicit Reporter(const RunOptions& options)
        : folder(options.output), progress(stdout, options.quiet), metrics(folder) {}

    std::filesystem::path folder;
    Progress progress;
    std::jthread ticks = progress_ticks(progress);
    MetricsWriter metrics;
    double looked_at_s = 0;     // when the folder was last looked at, in seconds of the run
    std::string lost_folder{};  // what became of it where it was too late to stop for it
  };

  // Restores what the checkpoint has.
  void go_on(const ResumePoint& point) {
    const CheckpointInfo info = load_checkpoint(point.checkpoint, {zero_.get()},
                                                {.allow_differences = point.with_changes}, axis_);
    if (info.step != point.info.step) {
      throw DataError(str(point.checkpoint.string(), " was replaced since the run began"));
    }
    samples_ = course_.first_sample;
    skipped_steps_ = count_of(point, kSkippedCount);
    loss_step_ = info.step;
    owes_ = {.validation = info.counts.contains(kOwesValidationCount),
             .test = info.counts.contains(kOwesTestCount)};
    has_news_ = info.figures.contains(kOwesBestFigure);
    if (has_news_) owed_best_ = info.figures.at(kOwesBestFigure);
    loss_ = at::full({}, std::numeric_limits<double>::quiet_NaN());  // until the next step
    for (const auto& [name, value] : info.figures) {
      if (name == kLossFigure) loss_ = at::full({}, value, at::kFloat);
      if (name == kElapsedFigure) elapsed_before_ = std::chrono::duration<double>(value);
    }
    evaluations_.go_on(info);
    if (evaluations_.are_without_progress()) last_step_ = info.step;
    checkpoints_->go_on(info);
    if (!reporter_) return;
    reporter_->progress.print(str("going on after step ", info.step, " (", samples_,
                                  " samples) from ", point.checkpoint.string()));
    for (const std::string& change : point.changes) reporter_->progress.print("  " + change);
    const std::int64_t kept = replicas::own_math_threads();
    const HostOptions& hosts = config_.launch.hosts;
    const std::int64_t replicas_here =
        hosts.replicas > 0 ? hosts.replicas : shard(replicas_, hosts.count, hosts.rank).size;
    const std::int64_t usual = replicas::math_threads(0, replicas_here);
    if (point.keeps_threads && kept != usual) {
      reporter_->progress.print(str("  parallel.threads_per_replica stays ", kept,
                                    ", as when the run began; this host would choose ", usual));
    }
    const std::string jump = jump_text(config_, course_, point);
    if (!jump.empty()) reporter_->progress.print("  " + jump);
  }

  // Tells once that a run which an older version began goes on with other bits.
  void tell_safe_convolutions() {
    const auto& counts = resume_->info.counts;
    const auto began = counts.find(kSafeConvolutionsCount);
    const bool is_told = began != counts.end() && began->second == kSafeConvolutions;
    if (is_told || !training::have_been_made_safe()) return;
    const std::string text =
        "some convolutions, as strided 1x1 ones of few channels, may have other bits than when the "
        "run began: LibTorch's own may be wrong or write outside of their memory";
    waive(*options_.resume, text);
    if (reporter_) reporter_->progress.print("  " + text);
  }

  // Evaluations of a step.
  struct Evaluates {
    bool validation = false;
    bool test = false;
  };

  // One step with what follows it. Returns whether the run is to stop.
  bool train(std::int64_t step) {
    if (stop_requested()) zero_->tell(kToldStop);
    checkpoints_->before_step();
    line_samples_ += train_step(step);
    if (resume_ != nullptr && step == course_.first_step) tell_safe_convolutions();
    const bool is_logged = step + 1 == last_step_ || (step + 1) % config_.trainer.log_every == 0;
    const std::int64_t every = config_.trainer.eval_every;
    const bool is_evaluated = step + 1 == last_step_ || (every > 0 && (step + 1) % every == 0);
    owes_ = {.validation = is_evaluated, .test = is_evaluated};
    is_logged ? log(step) : note_progress(step + 1);
    const auto before = Clock::now();
    if (options_.callbacks.after_step) tell_step(step, is_logged);
    if (ends_now_) owes_ = {.validation = true, .test = true};
    const bool is_stopped = conclude(step, owes_);
    line_begin_ += Clock::now() - before;
    return is_stopped;
  }

  // Evaluates and saves after `step`, the last that was done. Returns whether the run is to stop.
  bool conclude(std::int64_t step, const Evaluates& owed) {
    bool is_last = step + 1 == last_step_ || ends_now_;
    const auto end_here = [&] {
      is_last = true;
      last_step_ = step + 1;
      if (loss_step_ != step + 1) log(step);
    };
    if (is_last && last_step_ != step + 1) end_here();
    owes_ = {.validation = owed.validation && data_.validation != nullptr,
             .test = owed.test && data_.test != nullptr};
    if (owes_.validation) {
      if (is_last) save_last();
      validate(step);
    }
    if (!is_last && (ends_now_ || evaluations_.are_without_progress())) {
      end_here();
      if (reporter_ && !ends_now_) {
        reporter_->progress.print(str("step ", last_step_, ": ", evaluations_.progress_text(),
                                      ": trainer.patience ends the run"));
      }
    }
    // On the way the test set is looked at only where there is no other, and decides nothing.
    if (!is_last && data_.validation) owes_.test = false;
    if (owes_.test) {
      if (is_last) save_last();
      tell_evaluation(step, kTestSet, figures_on(*data_.test));
    }
    // As a callback of that evaluation says.
    if (!is_last && ends_now_) end_here();
    if (is_last) return false;
    const bool is_stopped = (step_report_.told_by_any & kToldStop) != 0;
    checkpoints_->after_step(step_report_);
    if (owed_best_ || is_stopped || checkpoints_->is_due(step + 1)) save(step + 1);
    return is_stopped;
  }

  void log(std::int64_t step) {
    check_loss(step);
    report(step);
    line_samples_ = 0;
    line_begin_ = Clock::now();
  }

  void tell_step(std::int64_t step, bool is_logged) {
    StepEnd end{.step = step + 1,
                .samples = samples_,
                .lr = lr_,
                .gradient_norm = step_report_.gradient_norm,
                .skipped = step_report_.skipped,
                .loss = std::nullopt};
    if (is_logged) end.loss = loss_.item<double>();
    options_.callbacks.after_step(own_, end);
  }

  void save(std::int64_t steps) {
    const std::optional<double> best = std::exchange(owed_best_, std::nullopt);
    checkpoints_->save(info_of(steps), best);
  }

  // What a checkpoint after so many steps says.
  [[nodiscard]] CheckpointInfo info_of(std::int64_t steps) const {
    CheckpointInfo info{
        .step = steps,
        .counts = {{kSamplesCount, samples_},
                   {kSkippedCount, skipped_steps_},
                   {kThreadsCount, replicas::own_math_threads()},
                   {kSafeConvolutionsCount, kSafeConvolutions}},
        .figures = {{kElapsedFigure, seconds_since(begin_)}},
        .texts = {{kConfigText, to_yaml(config_)}, {kVersionsText, versions_text()}}};
    if (resume_ != nullptr && !resume_->waived.empty()) info.texts[kWaivedText] = resume_->waived;
    add_course(course_, info);
    Fitted fitted = data_.fitted;
    if (!fitted.sample) fitted.sample = data_.train->type();  // sets that load_data() did not make
    add_record({.fitted = std::move(fitted), .sets = options_.sets}, info);
    if (steps == last_step_ && loss_step_ == steps) {
      info.figures[kLossFigure] = loss_.item<double>();
    }
    if (owes_.validation) info.counts[kOwesValidationCount] = 1;
    if (owes_.test) info.counts[kOwesTestCount] = 1;
    if (owed_best_) info.figures[kOwesBestFigure] = *owed_best_;
    evaluations_.add_to(info);
    return info;
  }

  // After an error: saves the last step that all have done, and says what has become of it, a line
  // for the error's end; "" if nothing is lost or the error itself says it.
  std::string after_failure(const std::exception_ptr& error) {
    const std::int64_t steps = course_.first_step + zero_->last_step() - steps_at_start_;
    const bool saves = config_.checkpoint.save != CheckpointOptions::Save::none;
    if (!saves || steps == course_.first_step) return "";
    const std::string saved =
        str("the state after step ", steps, " is saved: ", how_to_go_on(error, options_.output));
    const std::string unsaved = str("the state after step ", steps, " can't be saved: ");
    try {
      if (checkpoints_->have_failed()) return "";  // the error says so
      if (checkpoints_->has(steps)) return saved;
      if (lacks_replica(error)) {
        return str(unsaved, "a replica that has a part of it is late or lost; ",
                   what_is_left(options_.output));
      }
      if (!agrees_) return unsaved + "replicas may differ in it";
      if (steps > counted_steps_) samples_ = sampler_.end_of_step(samples_);
      const CheckpointSaver::Apart apart =
          checkpoints_->save_apart(info_of(steps), replicas::typed_text(error));
      return apart.is_saved ? saved : unsaved + apart.reason;
    } catch (const std::exception& another) {
      return unsaved + another.what();
    }
  }

  // Ends the run after `step`, since a signal asks for that.
  void stop(std::int64_t step) {
    checkpoints_->finish();
    if (!reporter_) return;
    reporter_->progress.finish();
    reporter_->progress.print(checkpoints_->last_step() == step + 1
                                  ? str("stopped after step ", step + 1,
                                        ", with a checkpoint: --output ",
                                        reporter_->folder.string(), " --resume auto goes on")
                                  : str("stopped after step ", step + 1, ", without a checkpoint"));
  }

  // One update from the next global batch; returns its number of samples.
  std::int64_t train_step(std::int64_t step) {
    const std::int64_t global_batch = sampler_.global_batch(samples_);
    // The next step's batches are made during this one.
    if (step + 1 < last_step_) request(sampler_.end_of_step(samples_));
    const double job_weight = weight_of_step(global_batch);
    loss_ = at::zeros({});
    // The second step shows what all take: the first also makes what stays.
    const bool is_counted = step == course_.first_step + 1;
    for (std::int64_t m = 0; m < microbatches_; ++m) {
      const Microbatch batch = take();
      std::optional<training::TensorMemory> memory;
      if (is_counted) memory.emplace();
      const at::Tensor local = microbatch_loss(batch, job_weight);
      zero_->backward(local);
      if (memory) activations_ = memory->peak();
      loss_ = loss_.add(local.detach());
    }
    lr_ = rate_of(config_, course_, step);
    update(step);
    samples_ = sampler_.end_of_step(samples_);
    counted_steps_ = step + 1;
    if (step_report_.skipped) count_skipped(step);
    const std::int64_t check_every = config_.trainer.check_every;
    if (check_every > 0 && (step + 1) % check_every == 0) {
      agrees_ = false;
      zero_->check_agreement();
      agrees_ = true;
    }
    return global_batch;
  }

  struct Microbatch {
    std::int64_t samples = 0;  // that count
    Batch tensors{};
  };

  // Asks for this replica's part of the global batch of the step at `position`.
  void request(std::int64_t position) {
    const auto indices = sampler_.indices(position, replica_);
    const std::int64_t epoch = sampler_.start_of_step(position) / data_.train->size();
    for (std::int64_t m = 0; m < microbatches_; ++m) {
      const auto part = shard(static_cast<std::int64_t>(indices.size()), microbatches_, m);
      const auto begin = indices.begin() + part.offset;
      std::vector<std::int64_t> own(begin, begin + part.size);
      // Without samples the model is run all the same, on one that does not count: others may wait
      // for it in the collectives inside, or to gather its blocks.
      if (own.empty()) own.push_back(0);
      loader_.request(std::move(own), epoch);
      coming_.push_back({part.size});
    }
  }

  // The next microbatch.
  Microbatch take() {
    Microbatch first = std::move(coming_.front());
    coming_.pop_front();
    if (!first.tensors.inputs.defined()) first.tensors = loader_.next();
    return first;
  }

  // What the losses of all replicas' microbatches are weighted by, in all; 0: nothing counts.
  double weight_of_step(std::int64_t global_batch) {
    if (objective_.loss->is_weighted_by_samples()) return static_cast<double>(global_batch);
    const at::Tensor own = at::zeros({}, at::kDouble);
    for (std::int64_t m = 0; m < microbatches_; ++m) {
      Microbatch& batch = coming_[static_cast<std::size_t>(m)];
      batch.tensors = loader_.next();
      own.add_(weight_of(batch));
    }
    return psum(own, axis_).item<double>();
  }

  double weight_of(const Microbatch& batch) const {
    if (objective_.loss->is_weighted_by_samples()) return static_cast<double>(batch.samples);
    return batch.samples == 0 ? 0 : objective_.loss->weight(batch.tensors.targets);
  }

  // The contribution of the samples' losses to the mean over the replicas of the sums over
  // microbatches: that is the weighted mean over all samples of the step.
  at::Tensor microbatch_loss(const Microbatch& batch, double job_weight) {
    std::optional<UncountedSamples> uncounted;
    if (batch.samples == 0) uncounted.emplace();
    const at::Tensor mean = training_loss(config_, objective_, *model_, batch.tensors);
    const double share = weight_of(batch) * static_cast<double>(replicas_);
    if (share == job_weight && share > 0) return mean;
    return mean * (job_weight > 0 ? share / job_weight : 0.0);
  }

  // Where the loss or a gradient is not finite since samples are not, these are told: the learning
  // rate is not to blame.
  void update(std::int64_t step) {
    const bool is_finite = std::isfinite(loss_.item<double>());
    if (!is_finite) check_samples(step, "the loss");
    try {
      step_report_ = zero_->step(lr_);
    } catch (const NonFiniteStep&) {
      if (is_finite) check_samples(step, "a gradient");
      // A replica that has found such a sample ends this wait with its error.
      barrier(axis_);
      throw;
    }
    if (step_report_.skipped && is_finite) check_samples(step, "a gradient");
  }

  // Looks for samples of the step that are not finite, as `what` is not.
  void check_samples(std::int64_t step, const char* what) {
    if (are_samples_told_) return;
    const auto indices = sampler_.indices(samples_, replica_);
    const std::int64_t epoch = sampler_.start_of_step(samples_) / data_.train->size();
    const std::string found = first_non_finite(*data_.train, indices, epoch);
    if (found.empty()) return;
    const std::string text =
        str(what, " is not finite at step ", step + 1, ": of the training set, ", found);
    if (config_.zero.non_finite == NonFinite::stop) throw DataError(text);
    log_warning(text + " (said once)");
    are_samples_told_ = true;
  }

  void count_skipped(std::int64_t step) {
    ++skipped_steps_;
    if (skipped_steps_ > 1 || !reporter_) return;
    reporter_->progress.finish();
    log_warning(str("step ", step + 1, " is skipped: ", step_report_.reason,
                    " (said once; skipped_steps counts them)"));
  }

  void check_loss(std::int64_t step) {
    loss_ = pmean(loss_, axis_);
    loss_step_ = step + 1;
    const double value = loss_.item<double>();
    if (std::isfinite(value) || config_.zero.non_finite == NonFinite::skip) return;
    throw Error(str("the loss is ", value, " at step ", step + 1,
                    "; training has diverged: try a smaller optimizer.lr or a trainer.clip_norm"));
  }

  // How far the run is after `steps`, in the epoch of its last sample, with the last loss known.
  ProgressState progress_state(std::int64_t steps) const {
    const std::int64_t last = std::max<std::int64_t>(samples_ - 1, 0);
    ProgressState state{.step = steps,
                        .total = last_step_,
                        .epoch = last / data_.train->size() + 1,
                        .loss = reported_loss_,
                        .elapsed_s = seconds_since(begin_)};
    if (line_samples_ > 0) {
      state.samples_per_s = static_cast<double>(line_samples_) / seconds_since(line_begin_);
    }
    return state;
  }

  // In steps without a line of their own: what is shown and looked at by time.
  void note_progress(std::int64_t steps) {
    if (!reporter_) return;
    const ProgressState state = progress_state(steps);
    reporter_->progress.note(state);
    if (state.elapsed_s - reporter_->looked_at_s < 1) return;
    reporter_->looked_at_s = state.elapsed_s;
    reporter_->metrics.check_place();
  }

  void report(std::int64_t step) {
    if (!reporter_) return;
    reported_loss_ = shortest_decimal(loss_.item<float>());
    const ProgressState state = progress_state(step + 1);
    reporter_->progress.update(state);
    std::vector<std::pair<std::string, MetricValue>> line{
        {"epoch", state.epoch},
        {"loss", *reported_loss_},
        {"lr", lr_},
        {"samples_per_s", *state.samples_per_s},
        {"gradient_norm", step_report_.gradient_norm}};
    if (skipped_steps_ > 0) line.emplace_back("skipped_steps", skipped_steps_);
    write_metrics(step, line);
  }

  // With `trained` of the parameters themselves where `figures` are of their averages, if the two
  // differ much.
  struct Evaluated {
    Figures figures;
    Figures trained{};
  };

  Evaluated figures_on(const Dataset& data) {
    const auto figures = [&] {
      return evaluate(*model_, data, objective_, config_.data_use.batch_size, axis_);
    };
    if (evaluated_values(config_) == ParameterValues::trained) return {figures()};
    // Each time: in a warm-up the two come to differ only later.
    Evaluated both{.figures = {}, .trained = figures()};
    const auto averages = zero_->averaged_parameters();
    both.figures = figures();
    if (!differ_much(both.figures, both.trained)) both.trained.clear();
    return both;
  }

  // Evaluates on the validation set. If the config's figure is better than that of all checkpoints
  // before, this step's is to be the best.
  void validate(std::int64_t step) {
    const Evaluated evaluated = figures_on(*data_.validation);
    if (config_.checkpoint.best != "none") {
      owed_best_ = evaluations_.better(evaluated.figures, checkpoints_->best());
    }
    tell_evaluation(step, kValidationSet, evaluated);
  }

  void tell_evaluation(std::int64_t step, const std::string& set, const Evaluated& evaluated) {
    const Figures& figures = evaluated.figures;
    const bool is_best = evaluations_.note(set, figures);
    (set == kTestSet ? owes_.test : owes_.validation) = false;
    has_news_ = true;
    if (reporter_) {
      std::vector<std::pair<std::string, MetricValue>> line;
      for (const auto& [name, value] : figures) line.emplace_back(prefix_of(set) + name, value);
      reporter_->progress.print(evaluation_text(step + 1, set, figures, evaluated.trained));
      write_metrics(step, line);
    }
    if (options_.callbacks.after_evaluation) {
      options_.callbacks.after_evaluation(own_, {step + 1, set, figures, is_best});
    }
  }

  // A line of these values, after where the run is.
  void write_metrics(std::int64_t step,
                     const std::vector<std::pair<std::string, MetricValue>>& values) {
    std::vector<std::pair<std::string, MetricValue>> line{
        {"step", step + 1}, {"elapsed_s", seconds_since(begin_)}, {"samples", samples_}};
    line.insert(line.end(), values.begin(), values.end());
    write_files(step + 1 == last_step_, [&] { reporter_->metrics.write(line); });
  }

  // Without its folder a run is stopped, but not once all is computed: that is told first.
  template <typename Write>
  void write_files(bool is_over, const Write& write) {
    try {
      if (reporter_->lost_folder.empty()) write();
    } catch (const Error& error) {
      if (!is_over) throw;
      reporter_->lost_folder = error.what();
    }
  }

  // Whether the model is small enough for its parameters to be printed.
  bool is_readable() const {
    std::int64_t values = 0;
    for (const auto& [name, parameter] : named_) values += parameter.numel();
    return values <= 16;
  }

  void print_parameters(const std::string& title) {
    if (!reporter_) return;
    std::vector<std::string> texts;
    for (const auto& [name, parameter] : model_->named_parameters().pairs()) {
      std::vector<double> numbers;
      const at::Tensor flat = parameter.detach().flatten();
      for (std::int64_t i = 0; i < flat.numel(); ++i) {
        numbers.push_back(shortest_decimal(flat[i].item<float>()));
      }
      const std::string text = join(numbers);
      texts.push_back(name + " = " + (numbers.size() == 1 ? text : "[" + text + "]"));
    }
    reporter_->progress.print(title + join(texts));
  }

  // Saves the run's last step, before an evaluation of it: that may fail. Or says what it has shown
  // in the checkpoint that is there. What goes wrong with that is told at the end.
  void save_last() {
    if (!unsaved_.empty()) return;
    try {
      const bool is_there = is_saved_ || checkpoints_->last_step() == last_step_;
      if (!is_there && !std::exchange(has_tried_last_, true)) {
        save(last_step_);
      } else if (is_there && has_news_) {
        const std::optional<double> best = std::exchange(owed_best_, std::nullopt);
        checkpoints_->amend(info_of(last_step_), best);
      }
      has_news_ = false;
      checkpoints_->finish();
    } catch (const CommError&) {
      throw;
    } catch (const Error& error) {
      unsaved_ = error.what();
    }
  }

  // Whether no evaluation had a figure by which a checkpoint could be the best, as one was to be.
  bool lacks_best() const {
    const CheckpointOptions& options = config_.checkpoint;
    return options.save != CheckpointOptions::Save::none && options.best != "none" &&
           !checkpoints_->best();
  }

  void finish() {
    save_last();
    const MemoryReport memory = memory_report(config_, data_, *zero_,
                                              {.resident_at_start = resident_at_start_,
                                               .checkpoint = checkpoints_->staged_bytes(),
                                               .activations = activations_});
    ParametersDigest digest;
    zero_->visit_parameters([&](const std::string& name, const at::Tensor& value) {
      if (reporter_) digest.add(name, value);
    });
    const auto whole = is_readable() ? zero_->whole_parameters() : nullptr;
    if (!reporter_) return;
    reporter_->progress.finish();
    if (is_readable()) print_parameters("updated parameters:  ");
    const auto buffers = buffer_map(*model_);
    RunResult result = result_of_job(config_, resume_);
    result.steps = last_step_;
    result.skipped_steps = skipped_steps_;
    result.loss = shortest_decimal(loss_.item<float>());
    result.eval = evaluations_.of(kTestSet);
    result.validation = evaluations_.of(kValidationSet);
    if (whole) result.parameters = named_;
    result.parameters_sha256 = digest.finish();
    if (!buffers.empty()) result.buffers_sha256 = parameters_sha256(buffers);
    result.memory = memory;
    write_files(true, [&] { write_result(reporter_->folder, result); });
    if (skipped_steps_ > 0) {
      reporter_->progress.print(str("skipped steps:       ", skipped_steps_, " of ", last_step_,
                                    ": the loss or a gradient was not finite"));
    }
    reporter_->progress.print("parameters_sha256:   " + result.parameters_sha256);
    reporter_->progress.print(memory_text(memory));
    if (!reporter_->lost_folder.empty()) {
      throw Error(str(reporter_->lost_folder, "; all ", counted(last_step_, "step"),
                      " are done, parameters_sha256 is ", result.parameters_sha256));
    }
    if (!unsaved_.empty()) throw Error(unsaved_);
    if (lacks_best()) {
      log_warning(str("checkpoint.best: the ", kValidationSet, " set's ", config_.checkpoint.best,
                      " was never a number, so there is no best checkpoint"));
    }
    reporter_->progress.print("results in           " + reporter_->folder.string());
  }

  std::size_t resident_at_start_ = resident_at_start();
  Trainer& own_;
  const Config& config_;
  const DataSets& data_;
  RunOptions options_;
  AxisNames axis_;
  std::int64_t replicas_;
  std::int64_t replica_;
  const ResumePoint* resume_;  // nullptr: the run begins
  Objective objective_;
  Sampler sampler_;
  Course course_;
  std::int64_t last_step_;  // the steps of the whole run; fewer than its course's if it ends early
  std::int64_t microbatches_;
  std::deque<Microbatch> coming_;  // asked of the loader: first those of this step
  Loader loader_;
  std::shared_ptr<Model> model_;
  std::map<std::string, at::Tensor> named_;
  Evaluations evaluations_;
  std::unique_ptr<ZeroTrainer> zero_;
  std::unique_ptr<Reporter> reporter_;
  std::unique_ptr<RunCheckpoints> checkpoints_;  // its last work uses the reporter
  std::chrono::duration<double> elapsed_before_{0};
  Clock::time_point begin_;              // of the first step, without the time between runs
  Clock::time_point line_begin_;         // of what the next line of metrics is about
  std::int64_t samples_ = 0;             // of all replicas: the sampler's position
  std::int64_t line_samples_ = 0;        // of these, since line_begin_
  std::optional<double> reported_loss_;  // the last one
  at::Tensor loss_;  // this replica's part of the last step's; where it is reported, of all
  StepReport step_report_;
  double lr_ = 0;                    // of the last step
  std::int64_t steps_at_start_ = 0;  // ZeroTrainer's
  std::int64_t counted_steps_ = 0;   // whose samples are in samples_
  std::int64_t loss_step_ = 0;       // the steps after which loss_ is that of all replicas
  Evaluates owes_;                   // of the last step, those that are still to come
  bool agrees_ = true;               // all replicas, as far as is known
  bool has_news_ = false;            // figures that no checkpoint has
  bool has_tried_last_ = false;      // to save the last step
  std::string unsaved_;              // what went wrong with that
  std::int64_t skipped_steps_ = 0;
  std::int64_t activations_ = 0;  // bytes of a microbatch's tensors
  // The last evaluation's figure, if it is the best and its step's checkpoint does not say so yet.
  std::optional<double> owed_best_;
  bool are_samples_told_ = false;  // that one is not finite
  bool ends_now_ = false;          // a callback has asked for that
  bool is_saved_ = false;          // the run's last checkpoint is there from the beginning
};

Trainer::Trainer(const Config& config, const DataSets& data, RunOptions options)
    : run_(std::make_unique<Run>(*this, config, data, std::move(options))) {}

Trainer::~Trainer() = default;

void Trainer::run() {
  run_->run();
}

void Trainer::end_after_step() {
  run_->end_after_step();
}

const Config& Trainer::config() const {
  return run_->config();
}

Model& Trainer::model() {
  return run_->model();
}

ZeroTrainer& Trainer::zero() {
  return run_->zero();
}

}  // namespace lockstep
