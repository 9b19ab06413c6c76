#pragma once

#include <chrono>
#include <cstddef>
#include <cstdint>
#include <filesystem>
#include <functional>
#include <optional>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "framework/base/non_copyable.h"
#include "framework/data/dataset.h"
#include "framework/telemetry/metrics.h"
#include "framework/telemetry/progress.h"
#include "framework/timeline/slow_link.h"
#include "framework/timeline/step_times.h"
#include "models/model.h"
#include "trainers/config/config.h"
#include "trainers/run/course.h"
#include "trainers/run/evaluate.h"
#include "trainers/run/resume.h"
#include "trainers/run/run_state.h"
#include "trainers/run/run_summary.h"
#include "trainers/run/wrong_pictures.h"

namespace lockstep {

/// What a run tells: on stdout, in metrics.jsonl, event files and result.json. Each replica has
/// one, which knows the time, and calls it alike; only that of replica 0 writes. One thread, but
/// for sync().
///
/// Where the folder is lost, a run is stopped by an Error; but not once all is computed: that is
/// told first.
class Reporter : private NonCopyable {
  using Clock = std::chrono::steady_clock;

 public:
  /// `data`: the training set; `first_step`: the steps done before. Throws Error where metrics
  /// can't be written. `config` must live as long.
  Reporter(const Config& config, const std::filesystem::path& folder, bool quiet,
           const Dataset& data, std::int64_t first_step, bool writes);

  [[nodiscard]] bool writes() const noexcept { return metrics_.has_value(); }
  /// What writes for TensorBoard; nullptr where nothing does.
  [[nodiscard]] SummaryWriter* summary() noexcept {
    return summary_ ? &summary_->writer() : nullptr;
  }

  /// Tells where a run goes on, and what it changes.
  void go_on(const Config& config, const Course& course, const ResumePoint& point);
  /// The first step begins now.
  void begin();
  /// Of the run until now, without the time between its parts.
  [[nodiscard]] double elapsed_s() const;

  /// What a sample's forward takes in products and convolutions of such a type.
  void note_operations(double multiply_adds, at::ScalarType type);
  /// After a step of so many samples, with what replicas have told at it: for how long each has
  /// worked, and how fast bytes come from host to host.
  void count(std::int64_t samples, const std::vector<double>& own_seconds,
             const std::vector<timeline::ToldRate>& link_rates);
  /// For steps without a line of their own: what is shown and looked at by time.
  void note(const RunState& state);
  /// A line of progress and of metrics, about the steps of `state.losses`.
  void log(const RunState& state);
  /// As evaluation_text() has it, and a line of metrics.
  void tell_evaluation(const RunState& state, const std::string& set, const Figures& figures,
                       const Figures& trained, ParameterValues weights);
  /// A line of metrics: the test set's figures by the weights of the best step.
  void note_best(const RunState& state, const BestStep& best, ParameterValues weights);
  /// Histograms for TensorBoard, where `step` is to have some, of what `visit_all` visits, which
  /// all replicas call together: "gradients/0.weight" of `what`. A warning says once why values
  /// have none. As leave_out().
  void add_histograms(std::int64_t step, const std::string& what,
                      const std::function<void(const ZeroTrainer::Visit& visit)>& visit_all);
  /// Pictures, for TensorBoard, where it is written for.
  void add_pictures(const RunState& state, const NamedPictures& pictures);
  /// Does `work`, whose time is none of the steps that the next line is about.
  void leave_out(const auto& work) {
    const auto begin = Clock::now();
    work();
    line_begin_ += Clock::now() - begin;
  }

  /// What the program itself prints next is not to stand behind the line of progress.
  void make_room() { progress_.make_room(); }
  void print(const std::string& line) { progress_.print(line); }
  void print_parameters(const std::string& title, const Model& model);
  /// A warning, from replica 0 alone.
  void warn(const std::string& text);
  /// Adds what the run's files have of a checkpoint's step: a run that goes on from there has just
  /// that, whatever was written since, or could not be written.
  void add_to(CheckpointInfo& info);
  /// Ends the line of progress.
  void finish_line() { progress_.finish(); }
  /// Writes and tells the result, and the best step behind these words.
  void finish(const RunResult& result, const std::string& words_of_best);
  /// Waits until the metrics are on the disk. Any thread.
  void sync() {
    if (metrics_) metrics_->sync();
    if (summary_) summary_->writer().flush();
  }

 private:
  using Values = std::vector<std::pair<std::string, MetricValue>>;

  [[nodiscard]] ProgressState progress_of(const RunState& state) const;
  void find_slow(const timeline::StepTimes& times);
  void look_at_memory();
  void print_best(const BestStep& best, const std::string& weights, const std::string& words);
  void write_metrics(const RunState& state, const Values& values);
  void write_files(bool is_over, const std::function<void()>& write);

  std::filesystem::path folder_;
  std::int64_t epoch_;   // its samples
  std::int64_t tokens_;  // of a sample; 0: it has none
  const LaunchOptions& launch_;
  const TelemetryOptions& telemetry_;
  Progress progress_;
  std::jthread ticks_ = progress_ticks(progress_);
  std::optional<MetricsWriter> metrics_;  // replica 0's
  std::optional<RunSummary> summary_;     // its too, as the config says
  std::optional<timeline::StepWatch> watch_;
  std::optional<double> waiting_;                // until the last line
  std::vector<timeline::StepPace> recent_;       // the last steps, of all hosts' replicas
  std::optional<timeline::SlowReplica> slow_;    // in these
  std::size_t line_paces_ = 0;                   // that have come since the last line
  timeline::LinkRates rates_;                    // of what came to hosts in the last steps
  std::vector<timeline::StepPace> recent_here_;  // the last steps, of this host's replicas
  std::optional<timeline::SlowLink> slow_link_;  // in these
  double flops_ = 0;                             // of a sample
  std::optional<double> peak_;                   // this machine's, a second
  double look_at_s_ = 1;     // when to look at the folder and the memory, in seconds of the run
  std::int64_t memory_ = 0;  // bytes that this process had then
  std::string lines_;        // of metrics, of the step `lines_step_`, also unwritten ones
  std::int64_t lines_step_ = -1;
  Values news_;              // what the next line of metrics says once: that the run has gone on
  std::string lost_folder_;  // what became of it where it was too late to stop for it
  std::chrono::duration<double> elapsed_before_{0};
  Clock::time_point begin_;        // of the first step, had the run not been interrupted
  Clock::time_point counted_;      // when the last step was
  Clock::time_point line_begin_;   // of what the next line of metrics is about
  std::int64_t line_samples_ = 0;  // since then
  LossMean line_loss_;             // of the last line
};

}  // namespace lockstep
