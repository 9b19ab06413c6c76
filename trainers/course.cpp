#include "trainers/course.h"

#include <algorithm>
#include <cmath>
#include <string>

#include "trainers/config_options.h"

namespace lockstep {
namespace {

// As a checkpoint has them.
const std::string kBatch = "batch";
const std::string kScheduleBatch = "schedule_batch";
const std::string kScheduleSteps = "schedule_steps";
const std::string kPhaseStep = "phase_step";
const std::string kPhaseSteps = "phase_steps";
const std::string kPhasePlace = "phase_place";

// The steps of `batch` samples that are left for a run that stands at `sample` and at `place`.
std::int64_t steps_left(const Config& config, const Sampler& sampler, const Course& course,
                        double place) {
  if (config.trainer.epochs) {
    const std::int64_t end = sampler.start_of_epoch(*config.trainer.epochs);
    return sampler.steps_between(std::min(course.first_sample, end), end);
  }
  if (config.trainer.samples) {
    const std::int64_t end = *config.trainer.samples;
    return sampler.steps_between(std::min(course.first_sample, end), end);
  }
  const double steps = (static_cast<double>(course.schedule_steps) - place) *
                       static_cast<double>(course.schedule_batch) /
                       static_cast<double>(course.batch);
  return static_cast<std::int64_t>(std::ceil(std::max(0.0, steps)));
}

}  // namespace

double Course::place_of(std::int64_t step) const {
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
    before.batch = count_of(*point, kBatch);
    before.schedule_steps = count_of(*point, kScheduleSteps);
    before.phase_step = count_of(*point, kPhaseStep);
    before.phase_steps = count_of(*point, kPhaseSteps);
    before.phase_place = figure_of(*point, kPhasePlace);
    course.first_step = point->info.step;
    course.first_sample = count_of(*point, kSamplesCount);
    course.schedule_batch = count_of(*point, kScheduleBatch);
  }
  options.batch_size = course.schedule_batch;
  options.replicas = 1;
  course.schedule_steps = total_steps(config, Sampler(options));
  course.phase_step = course.first_step;
  course.phase_place = before.place_of(course.first_step);
  course.phase_steps = steps_left(config, sampler, course, course.phase_place);
  course.total_steps = course.first_step + course.phase_steps;
  // The same numbers as without the interruption, to the last bit.
  if (course.batch == before.batch && course.schedule_steps == before.schedule_steps) {
    course.phase_step = before.phase_step;
    course.phase_steps = before.phase_steps;
    course.phase_place = before.phase_place;
    course.total_steps = before.phase_step + before.phase_steps;
  }
  return course;
}

void add_course(const Course& course, CheckpointInfo& info) {
  info.counts[kBatch] = course.batch;
  info.counts[kScheduleBatch] = course.schedule_batch;
  info.counts[kScheduleSteps] = course.schedule_steps;
  info.counts[kPhaseStep] = course.phase_step;
  info.counts[kPhaseSteps] = course.phase_steps;
  info.figures[kPhasePlace] = course.phase_place;
}

}  // namespace lockstep
