#include "trainers/run/reporter.h"

#include <algorithm>
#include <cstddef>
#include <map>
#include <span>

#include "framework/base/errors.h"
#include "framework/base/logging.h"
#include "framework/base/memory.h"
#include "framework/base/range.h"
#include "framework/base/text.h"
#include "framework/launch/launch.h"
#include "framework/maps/machine.h"
#include "trainers/run/evaluations.h"
#include "trainers/run/memory_report.h"
#include "trainers/run/peak.h"

namespace lockstep {
namespace {

// From step to step, in 100 of them, a replica is called slow: a few may be slow by chance.
constexpr std::size_t kRecent = 99;
// A link's rates: with many hosts each is told less often.
constexpr std::size_t kLeastRates = 20;

// The last ones, which is cheap to call for each.
void keep_recent(auto& all, std::size_t count = kRecent) {
  if (all.size() > count) all.erase(all.begin(), all.end() - static_cast<std::ptrdiff_t>(count));
}

double seconds_since(std::chrono::steady_clock::time_point start) {
  return std::chrono::duration<double>(std::chrono::steady_clock::now() - start).count();
}

// The figures, and which weights have them.
std::vector<std::pair<std::string, MetricValue>> figure_values(const std::string& prefix,
                                                               const Figures& figures,
                                                               ParameterValues weights) {
  std::vector<std::pair<std::string, MetricValue>> values{{"weights", name_of(weights)}};
  for (const auto& [name, value] : figures) values.emplace_back(prefix + name, value);
  return values;
}

std::int64_t replicas_here(const LaunchOptions& launch) {
  const HostOptions& hosts = launch.hosts;
  return hosts.replicas > 0 ? hosts.replicas : shard(launch.replicas, hosts.count, hosts.rank).size;
}

// Where the time of a step went, as the mean over steps and replicas.
void add_parts(const timeline::StepTimes& times,
               std::vector<std::pair<std::string, MetricValue>>& line) {
  timeline::ReplicaTimes all;
  double count = 0;
  for (const auto& [step, replicas] : times.steps) {
    for (const auto& [replica, its] : replicas) {
      all += its;
      ++count;
    }
  }
  if (count == 0) return;
  std::map<std::string, double> parts;
  for (std::size_t part = 0; part < all.parts.size(); ++part) {
    if (all.parts[part] > 0) parts[timeline::kTimeParts[part]] = all.parts[part] / count;
  }
  line.emplace_back("parts", parts);
  line.emplace_back("waiting_s", all.waited() / count);
  line.emplace_back("hidden_communication_s", all.hidden / count);
}

// Of this host's replicas, the means over steps.
std::map<int, timeline::ReplicaWork> work_here(const timeline::StepTimes& times) {
  const auto steps = static_cast<double>(times.steps.size());
  std::map<int, timeline::ReplicaWork> work;
  for (const auto& [replica, its] : times.sums()) {
    work[replica] = {.own = its.own() / steps, .waiting = its.waited() / steps};
  }
  return work;
}

void add_work(const std::map<int, timeline::ReplicaWork>& replicas,
              std::vector<std::pair<std::string, MetricValue>>& line) {
  if (replicas.size() < 2) return;
  std::map<std::string, double> own, waiting;
  for (const auto& [replica, its] : replicas) {
    own[std::to_string(replica)] = its.own;
    waiting[std::to_string(replica)] = its.waiting;
  }
  line.emplace_back("replica_own_s", own);
  line.emplace_back("replica_waiting_s", waiting);
}

}  // namespace

Reporter::Reporter(const Config& config, const std::filesystem::path& folder, bool quiet,
                   const Dataset& data, std::int64_t first_step, bool writes)
    : folder_(folder),
      epoch_(data.size()),
      tokens_(data.type().has_tokens() ? data.type().input.values() : 0),
      launch_(config.launch),
      telemetry_(config.telemetry),
      progress_(stdout, quiet || !writes) {
  if (!writes) return;
  metrics_.emplace(folder);
  watch_.emplace(timeline::track_here);
  if (config.telemetry.tensorboard) summary_.emplace(folder, config, first_step);
}

void Reporter::go_on(const Config& config, const Course& course, const ResumePoint& point) {
  const double elapsed = entry_of(point.info.figures, kElapsedFigure).value_or(0);
  lines_ = entry_of(point.info.texts, kMetricsText).value_or("");
  lines_step_ = point.info.step;
  elapsed_before_ = std::chrono::duration<double>(elapsed);
  news_ = {{"resumed_after", course.first_step}};
  if (launch_restarts() > 0) news_.emplace_back("restarts", launch_restarts());
  print(str("going on after step ", course.first_step, " (", course.first_sample, " samples) from ",
            point.checkpoint.string()));
  for (const std::string& change : point.changes) print("  " + change);
  const std::int64_t kept = maps::own_math_threads();
  const std::int64_t usual = maps::math_threads(0, replicas_here(launch_));
  if (point.keeps_threads && kept != usual) {
    print(str("  parallel.threads_per_replica stays ", kept,
              ", as when the run began; this host would choose ", usual));
  }
  for (const std::string& text : {length_text(config, course), jump_text(config, course, point)}) {
    if (!text.empty()) print("  " + text);
  }
}

void Reporter::begin() {
  line_begin_ = Clock::now();
  begin_ = line_begin_ - std::chrono::duration_cast<Clock::duration>(elapsed_before_);
}

// A backward has two products for each of the forward's: by its outputs' gradients, those of the
// weights and of the inputs.
void Reporter::note_operations(double multiply_adds, at::ScalarType type) {
  flops_ = 3 * 2 * multiply_adds;
  peak_ = known_peak(type);
}

double Reporter::elapsed_s() const {
  return seconds_since(begin_);
}

void Reporter::note(const RunState& state) {
  if (!metrics_) return;
  const ProgressState progress = progress_of(state);
  progress_.note(progress);
  if (progress.elapsed_s < look_at_s_) return;
  metrics_->check_place();
  look_at_memory();
}

// What the first step tells is no time, and before it there is none to begin from.
void Reporter::count(std::int64_t samples, const std::vector<double>& own_seconds,
                     const std::vector<timeline::ToldRate>& link_rates) {
  line_samples_ += samples;
  const double total = seconds_since(std::exchange(counted_, Clock::now()));
  if (!metrics_) return;
  for (const timeline::ToldRate& told : link_rates) {
    std::vector<double>& its = rates_[{told.from, told.to}];
    its.push_back(told.rate);
    // So many of the last steps have told it. A program may have launched on other hosts than its
    // config says.
    const auto others =
        static_cast<std::size_t>(std::max<std::int64_t>(1, launch_.hosts.count - 1));
    keep_recent(its, std::max(kLeastRates, kRecent / others));
  }
  if (std::ranges::count(own_seconds, 0) > 0) return;
  ++line_paces_;
  timeline::StepPace& pace = recent_.emplace_back(timeline::StepPace{.total = total});
  for (const double seconds : own_seconds) {
    pace.own.emplace(static_cast<int>(pace.own.size()), seconds);
  }
  keep_recent(recent_);
}

void Reporter::log(const RunState& state) {
  if (metrics_) {
    line_loss_ = state.losses;
    if (memory_ == 0 || elapsed_s() >= look_at_s_) look_at_memory();
    const timeline::StepTimes times = watch_->next();
    find_slow(times);
    const ProgressState progress = progress_of(state);
    progress_.update(progress);
    Values line{{"epoch", progress.epoch},
                {"loss", *progress.loss},
                {"lr", state.lr},
                {"samples_per_s", *progress.samples_per_s},
                {"gradient_norm", state.report.gradient_norm},
                {"memory", memory_}};
    if (progress.tokens_per_s) line.emplace_back("tokens_per_s", *progress.tokens_per_s);
    const double flops_per_s = *progress.samples_per_s * flops_;
    if (flops_ > 0) line.emplace_back("gflop_per_s", flops_per_s * 1e-9);
    if (flops_ > 0 && peak_) {
      const double here =
          static_cast<double>(replicas_here(launch_)) / static_cast<double>(launch_.replicas);
      line.emplace_back("part_of_peak", flops_per_s * here / *peak_);
    }
    add_parts(times, line);
    // What this host has recorded does not have the replicas of others.
    const std::size_t told = std::min(std::exchange(line_paces_, 0), recent_.size());
    add_work(launch_.hosts.count > 1 ? timeline::replica_work(std::span(recent_).last(told))
                                     : work_here(times),
             line);
    if (slow_) {
      line.emplace_back("slow_replica", std::int64_t{slow_->replica});
      line.emplace_back("slow_replica_s", slow_->seconds_a_step);
      line.emplace_back("slow_replica_share", slow_->share);
    }
    if (slow_link_) {
      line.emplace_back("slow_link", slow_link_->name());
      line.emplace_back("slow_link_s", slow_link_->seconds_a_step);
      line.emplace_back("slow_link_share", slow_link_->share);
    }
    if (state.skipped_steps > 0) line.emplace_back("skipped_steps", state.skipped_steps);
    write_metrics(state, line);
  }
  line_samples_ = 0;
  line_begin_ = Clock::now();
}

void Reporter::tell_evaluation(const RunState& state, const std::string& set,
                               const Figures& figures, const Figures& trained,
                               ParameterValues weights) {
  if (!metrics_) return;
  Values line = figure_values(prefix_of(set), figures, weights);
  if (set == kTestSet) {  // under its other name, too
    for (const auto& [name, value] : figures) line.emplace_back(set + "_" + name, value);
  }
  print(evaluation_text(state.steps, set, figures, trained, weights));
  write_metrics(state, line);
}

void Reporter::note_best(const RunState& state, const BestStep& best, ParameterValues weights) {
  if (!metrics_) return;
  Values line{{"best_step", best.step}};
  const Values figures = figure_values(prefix_of(kTestBest), best.test, weights);
  line.insert(line.end(), figures.begin(), figures.end());
  write_metrics(state, line);
}

void Reporter::add_histograms(
    std::int64_t step, const std::string& what,
    const std::function<void(const ZeroTrainer::Visit& visit)>& visit_all) {
  const std::int64_t every = telemetry_.tensorboard ? telemetry_.histograms : 0;
  if (every == 0 || step % every != 0) return;
  leave_out([&] {
    visit_all([&](const std::string& name, const at::Tensor& values) {
      if (!summary_) return;
      const std::string reason = summary_->add_histogram(str(what, "/", name), values, step);
      if (!reason.empty()) warn(reason);
    });
  });
}

void Reporter::add_pictures(const RunState& state, const NamedPictures& pictures) {
  for (const auto& [tag, picture] : pictures) summary()->add_image(tag, picture, state.steps);
}

void Reporter::print_parameters(const std::string& title, const Model& model) {
  if (!metrics_) return;
  std::vector<std::string> texts;
  for (const auto& [name, parameter] : model.named_parameters().pairs()) {
    const auto numbers = mapped(parameter.detach().flatten().unbind(), [](const at::Tensor& value) {
      return shortest_decimal(value.item<float>());
    });
    const std::string text = join(numbers);
    texts.push_back(name + " = " + (numbers.size() == 1 ? text : "[" + text + "]"));
  }
  print(title + join(texts));
}

void Reporter::add_to(CheckpointInfo& info) {
  if (!metrics_) return;
  info.texts[kMetricsText] = lines_step_ == info.step ? lines_ : "";
  if (summary_) info.texts[kEventFileText] = summary()->place();
}

void Reporter::warn(const std::string& text) {
  if (metrics_) log_warning(text);
}

void Reporter::finish(const RunResult& result, const std::string& words_of_best) {
  if (!metrics_) return;
  write_files(true, [&] {
    write_result(folder_, result);
    if (summary_) summary_->add_config_values(result.steps);
  });
  if (result.skipped_steps > 0) {
    print(str("skipped steps:       ", result.skipped_steps, " of ", result.steps,
              ": the loss or a gradient was not finite"));
  }
  if (result.best) print_best(*result.best, result.weights, words_of_best);
  print("parameters_sha256:   " + result.parameters_sha256);
  print(memory_text(*result.memory));
  if (lost_folder_.empty()) return;
  throw Error(str(lost_folder_, "; all ", counted(result.steps, "step"),
                  " are done, parameters_sha256 is ", result.parameters_sha256));
}

void Reporter::print_best(const BestStep& best, const std::string& weights,
                          const std::string& words) {
  const bool are_averages = weights == name_of(ParameterValues::averaged);
  const auto text = [&](const std::string& set, const Figures& figures) {
    return words +
           evaluation_text(best.step, set, figures, {},
                           are_averages ? ParameterValues::averaged : ParameterValues::trained);
  };
  print(text(kValidationSet, best.validation) +
        (best.checkpoint.empty() ? "; no checkpoint has its weights: checkpoint.best keeps "
                                   "them, and measures them on the test set"
                                 : "; in " + (folder_ / best.checkpoint).string()));
  if (!best.test.empty()) print(text(kTestSet, best.test));
}

// Whom the replicas wait for, and for how much of their time.
void Reporter::find_slow(const timeline::StepTimes& times) {
  waiting_.reset();
  if (!times.steps.empty() && launch_.replicas > 1) {
    // What this host has recorded does not say for whom of another host it waits.
    waiting_ = launch_.hosts.count > 1 ? timeline::waiting_share(recent_) : times.waiting_share();
  }
  slow_ = recent_.size() == kRecent ? timeline::slow_replica(recent_) : std::nullopt;
  const auto here = times.paces();
  recent_here_.insert(recent_here_.end(), here.begin(), here.end());
  keep_recent(recent_here_);
  slow_link_.reset();
  if (recent_here_.size() < kRecent / 2) return;  // of many calls the rings keep no more steps
  slow_link_ = timeline::slow_link(rates_, recent_here_);
  if (slow_link_ && !slow_) waiting_ = slow_link_->share;
}

// Once a second, and less often where that takes longer than a thousandth of the time: the kernel
// adds up a process' memory page by page.
void Reporter::look_at_memory() {
  const double begin = elapsed_s();
  memory_ = static_cast<std::int64_t>(resident_memory());
  const double end = elapsed_s();
  look_at_s_ = end + std::max(1.0, 1000 * (end - begin));
}

// How far the run is, in the epoch of its last sample. Its loss is the mean over as many steps as
// the last line had, of those before that line as that line has it.
ProgressState Reporter::progress_of(const RunState& state) const {
  const std::int64_t last = std::max<std::int64_t>(state.samples - 1, 0);
  ProgressState progress{.step = state.steps,
                         .total = state.course,
                         .stop = state.last_step,
                         .epoch = last / epoch_ + 1,
                         .waiting = waiting_,
                         .slow = slow_ ? std::optional(slow_->replica) : std::nullopt,
                         .slow_link = slow_link_ ? slow_link_->name() : "",
                         .memory = memory_,
                         .elapsed_s = elapsed_s()};
  if (line_samples_ == 0) return progress;
  LossMean loss = state.losses;
  if (loss.steps < line_loss_.steps) {
    const auto before = static_cast<double>(line_loss_.steps - loss.steps);
    loss = {loss.sum + before * line_loss_.value(), line_loss_.steps};
  }
  progress.loss = state.as_told(loss.value());
  progress.lr = state.lr;
  progress.samples_per_s = static_cast<double>(line_samples_) / seconds_since(line_begin_);
  if (tokens_ > 0) progress.tokens_per_s = *progress.samples_per_s * static_cast<double>(tokens_);
  return progress;
}

// A line of these values, after where the run is.
void Reporter::write_metrics(const RunState& state, const Values& values) {
  const std::chrono::duration<double> now = std::chrono::system_clock::now().time_since_epoch();
  Values line{{"step", state.steps},
              {"time", now.count()},
              {"elapsed_s", elapsed_s()},
              {"samples", state.samples}};
  line.insert(line.end(), values.begin(), values.end());
  Values written = line;
  written.insert(written.end(), news_.begin(), news_.end());
  news_.clear();
  const std::string text = metrics_line(written);
  if (std::exchange(lines_step_, state.steps) != state.steps) lines_.clear();
  lines_ += text;
  write_files(state.is_last(), [&] {
    metrics_->check_place();
    if (summary_) summary_->add(state.steps, line);
    metrics_->write_line(text);
  });
}

void Reporter::write_files(bool is_over, const std::function<void()>& write) {
  try {
    if (lost_folder_.empty()) write();
  } catch (const Error& error) {
    if (!is_over) throw;
    lost_folder_ = error.what();
  }
}

}  // namespace lockstep
