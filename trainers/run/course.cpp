#include "trainers/run/course.h"

#include <algorithm>
#include <cmath>
#include <string>

#include "framework/base/text.h"
#include "framework/optim/schedule.h"
#include "trainers/config/config_options.h"

namespace lockstep {
namespace {

// As a checkpoint has them.
const std::string kBatch = "batch";
const std::string kScheduleBatch = "schedule_batch";
const std::string kScheduleSteps = "schedule_steps";
const std::string kPhaseStep = "phase_step";
const std::string kPhaseSteps = "phase_steps";
const std::string kPhasePlace = "phase_place";
const std::string kScheduleFixed = "schedule_fixed";  // 1, or not there

// The course of the run until `point`, as far as its place in the schedule needs it.
Course course_before(const ResumePoint& point) {
  Course before;
  before.batch = count_of(point, kBatch);
  before.schedule_batch = count_of(point, kScheduleBatch);
  before.schedule_steps = count_of(point, kScheduleSteps);
  before.phase_step = count_of(point, kPhaseStep);
  before.phase_steps = count_of(point, kPhaseSteps);
  before.phase_place = figure_of(point, kPhasePlace);
  before.is_fixed = point.info.counts.contains(kScheduleFixed);
  return before;
}

// The steps of `batch` samples that are left for a run that stands at `sample` and at `place`, of
// `run_steps` of the batch with which it began.
std::int64_t steps_left(const Config& config, const Sampler& sampler, const Course& course,
                        double place, std::int64_t run_steps) {
  if (config.trainer.epochs) {
    const std::int64_t end = sampler.start_of_epoch(*config.trainer.epochs);
    return sampler.steps_between(std::min(course.first_sample, end), end);
  }
  if (config.trainer.samples) {
    const std::int64_t end = *config.trainer.samples;
    return sampler.steps_between(std::min(course.first_sample, end), end);
  }
  const double steps = (static_cast<double>(run_steps) - place) *
                       static_cast<double>(course.schedule_batch) /
                       static_cast<double>(course.batch);
  return static_cast<std::int64_t>(std::ceil(std::max(0.0, steps)));
}

}  // namespace

double Course::place_of(std::int64_t step) const {
  if (is_fixed) {
    const double advance = static_cast<double>(batch) / static_cast<double>(schedule_batch);
    return phase_place + static_cast<double>(step - phase_step) * advance;
  }
  if (phase_steps == 0) return phase_place;
  const double advance =
      (static_cast<double>(schedule_steps) - phase_place) / static_cast<double>(phase_steps);
  return phase_place + static_cast<double>(step - phase_step) * advance;
}

Course course_of(const Config& config, const DataSets& data, std::int64_t replicas,
                 const Sampler& sampler, const ResumePoint* point) {
  SamplerOptions options = sampler_options(config, data, replicas);
  Course course;
  course.batch = options.batch_size * replicas;
  course.schedule_batch = course.batch;
  Course before;
  if (point != nullptr) {
    before = course_before(*point);
    course.first_step = point->info.step;
    course.first_sample = count_of(*point, kSamplesCount);
    course.schedule_batch = count_of(*point, kScheduleBatch);
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
  // The same numbers as without the interruption, to the last bit.
  if (course.is_fixed) {
    course.phase_step = before.phase_step;
    course.phase_steps = course.total_steps - course.phase_step;
    course.phase_place = before.phase_place;
  } else if (course.schedule_steps == before.schedule_steps) {
    course.phase_step = before.phase_step;
    course.phase_steps = before.phase_steps;
    course.phase_place = before.phase_place;
    course.total_steps = before.phase_step + before.phase_steps;
  }
  return course;
}

double rate_of(const Config& config, const Course& course, std::int64_t step) {
  // The place may lie behind the end: of a schedule that is fixed, and by rounding of any.
  const auto end = static_cast<double>(course.schedule_steps);
  return learning_rate(config.schedule, config.zero.optimizer.lr,
                       std::min(course.place_of(step), end), course.schedule_steps);
}

std::string jump_text(const Config& config, const Course& course, const ResumePoint& point) {
  const Course before = course_before(point);
  const std::int64_t step = course.first_step;
  const bool is_over = step >= course.total_steps;
  if (is_over || before.schedule_steps == course.schedule_steps) return "";
  if (config.schedule.warmup_steps > before.schedule_steps) return "";  // as it can't have been
  const double from = rate_of(config, before, step);
  const double to = rate_of(config, course, step);
  if (from == to) return "";
  return str("the learning rate goes from ", from, " to ", to, " at step ", step + 1,
             ": the schedule's length was ", counted(before.schedule_steps, "step"), ", is ",
             course.schedule_steps, "; schedule.steps: ", before.schedule_steps, " keeps it");
}

void add_course(const Course& course, CheckpointInfo& info) {
  info.counts[kBatch] = course.batch;
  info.counts[kScheduleBatch] = course.schedule_batch;
  info.counts[kScheduleSteps] = course.schedule_steps;
  if (course.is_fixed) info.counts[kScheduleFixed] = 1;
  info.counts[kPhaseStep] = course.phase_step;
  info.counts[kPhaseSteps] = course.phase_steps;
  info.figures[kPhasePlace] = course.phase_place;
}

}  // namespace lockstep
