#include "trainers/run/course.h"

#include <algorithm>
#include <cmath>
#include <utility>

#include "framework/base/text.h"
#include "framework/data/sampler.h"
#include "framework/optim/schedule.h"
#include "trainers/config/config_options.h"

namespace lockstep {
namespace {

// Counts of a checkpoint.
constexpr std::pair<const char*, std::int64_t Course::*> kCounts[] = {
    {"batch", &Course::batch},
    {"schedule_batch", &Course::schedule_batch},
    {"schedule_steps", &Course::schedule_steps},
    {"phase_step", &Course::phase_step},
    {"phase_steps", &Course::phase_steps}};
const std::string kScheduleFixed = "schedule_fixed";  // 1, or not there
const std::string kPhasePlace = "phase_place";

// The course of the run until `point`, as far as its place in the schedule needs it.
Course course_before(const ResumePoint& point) {
  Course before;
  for (const auto& [name, count] : kCounts) before.*count = count_of(point, name);
  before.phase_place = recorded_entry(point.checkpoint, point.info.figures, kPhasePlace);
  before.is_fixed = point.info.counts.contains(kScheduleFixed);
  return before;
}

// The steps of `batch` samples that are left for a run that stands at `sample` and at `place`, of
// `run_steps` of the batch with which it began.
std::int64_t steps_left(const Config& config, const Sampler& sampler, const Course& course,
                        double place, std::int64_t run_steps) {
  if (config.trainer.epochs || config.trainer.samples) {
    const std::int64_t end = config.trainer.epochs ? sampler.start_of_epoch(*config.trainer.epochs)
                                                   : *config.trainer.samples;
    return sampler.steps_between(std::min(course.first_sample, end), end);
  }
  const double steps = (static_cast<double>(run_steps) - place) *
                       static_cast<double>(course.schedule_batch) /
                       static_cast<double>(course.batch);
  return static_cast<std::int64_t>(std::ceil(std::max(0.0, steps)));
}

}  // namespace

double Course::place_of(std::int64_t step) const {
  if (!is_fixed && phase_steps == 0) return phase_place;
  const double advance = is_fixed ? static_cast<double>(batch) / static_cast<double>(schedule_batch)
                                  : (static_cast<double>(schedule_steps) - phase_place) /
                                        static_cast<double>(phase_steps);
  return phase_place + static_cast<double>(step - phase_step) * advance;
}

Course course_of(const Config& config, const DataSets& data, const ResumePoint* point) {
  SamplerOptions options = sampler_options(config, data);
  const Sampler sampler(options);
  Course course;
  course.batch = options.batch_size * options.replicas;
  course.schedule_batch = course.batch;
  Course before;
  if (point != nullptr) {
    before = course_before(*point);
    course.first_step = point->info.step;
    course.first_sample = count_of(*point, kSamplesCount);
    course.schedule_batch = before.schedule_batch;
  }
  options.batch_size = course.schedule_batch;
  options.replicas = 1;
  const std::int64_t run_steps = total_steps(config, Sampler(options));
  course.is_fixed = config.schedule.steps.has_value();
  course.schedule_steps = config.schedule.steps.value_or(run_steps);
  course.phase_step = course.first_step;
  course.phase_place = point != nullptr ? before.place_of(course.first_step) : 0;
  course.phase_steps = steps_left(config, sampler, course, course.phase_place, run_steps);
  course.total_steps = course.first_step + course.phase_steps;
  if (course.batch != before.batch || course.is_fixed != before.is_fixed) return course;
  if (!course.is_fixed && course.schedule_steps != before.schedule_steps) return course;
  // The same numbers as without the interruption, to the last bit.
  course.phase_step = before.phase_step;
  course.phase_place = before.phase_place;
  if (!course.is_fixed) course.total_steps = before.phase_step + before.phase_steps;
  course.phase_steps = course.total_steps - course.phase_step;
  return course;
}

std::function<double(std::int64_t step)> rate_of(const Config& config, const Course& course) {
  const LearningRate rate(config.schedule, config.zero.optimizer.lr, course.schedule_steps);
  return [rate, course](std::int64_t step) {
    // The place may lie behind the end: of a schedule that is fixed, and by rounding of any.
    const auto end = static_cast<double>(course.schedule_steps);
    return rate.at(std::min(course.place_of(step), end));
  };
}

std::string jump_text(const Config& config, const Course& course, const ResumePoint& point) {
  const Course before = course_before(point);
  const std::int64_t step = course.first_step;
  const bool is_over = step >= course.total_steps;
  if (is_over || before.schedule_steps == course.schedule_steps) return "";
  if (config.schedule.warmup_steps > before.schedule_steps) return "";  // as it can't have been
  const double from = rate_of(config, before)(step);
  const double to = rate_of(config, course)(step);
  if (from == to) return "";
  return str("the learning rate goes from ", from, " to ", to, " at step ", step + 1,
             ": the schedule's length was ", counted(before.schedule_steps, "step"), ", is ",
             course.schedule_steps, "; schedule.steps: ", before.schedule_steps, " keeps it");
}

std::string length_text(const Config& config, const Course& course) {
  const bool counts_steps = !config.trainer.epochs && !config.trainer.samples;
  if (!counts_steps || course.batch == course.schedule_batch) return "";
  return str("trainer.steps counts steps of ", counted(course.schedule_batch, "sample"),
             ", as the run began: with ", course.batch, " a step it ends after step ",
             course.total_steps);
}

void add_course(const Course& course, CheckpointInfo& info) {
  for (const auto& [name, count] : kCounts) info.counts[name] = course.*count;
  if (course.is_fixed) info.counts[kScheduleFixed] = 1;
  info.figures[kPhasePlace] = course.phase_place;
}

}  // namespace lockstep
