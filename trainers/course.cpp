#include "trainers/course.h"

#include <algorithm>
#include <cmath>

#include "trainers/config_options.h"

namespace lockstep {
namespace {

// The steps that are left for the run, of `batch` samples each.
std::int64_t steps_left(const Config& config, const Sampler& sampler, std::int64_t batch,
                        const Course& course) {
  if (config.trainer.epochs) {
    const std::int64_t end = sampler.start_of_epoch(*config.trainer.epochs);
    return sampler.steps_between(std::min(course.first_sample, end), end);
  }
  const double left = static_cast<double>(course.schedule_steps) - course.schedule_place;
  const double steps =
      left * static_cast<double>(course.schedule_batch) / static_cast<double>(batch);
  return static_cast<std::int64_t>(std::ceil(std::max(0.0, steps)));
}

}  // namespace

Course course_of(const Config& config, const DataSets& data, std::int64_t replicas,
                 const Sampler& sampler, const ResumePoint* point) {
  const SamplerOptions options = sampler_options(config, data, replicas);
  const std::int64_t batch = options.batch_size * replicas;
  Course course{.schedule_batch = batch};
  if (point != nullptr) {
    course.first_step = point->info.step;
    course.first_sample = point->info.counts.at(kSamplesCount);
    course.schedule_place = point->info.figures.at(kSchedulePlaceFigure);
    course.schedule_batch = point->info.counts.at(kScheduleBatchCount);
  }
  SamplerOptions first = options;
  first.batch_size = course.schedule_batch;
  first.replicas = 1;
  course.schedule_steps = total_steps(config, Sampler(first));
  const std::int64_t left = steps_left(config, sampler, batch, course);
  course.total_steps = course.first_step + left;
  if (left > 0) {
    course.schedule_advance = (static_cast<double>(course.schedule_steps) - course.schedule_place) /
                              static_cast<double>(left);
  }
  return course;
}

}  // namespace lockstep
