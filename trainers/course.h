#pragma once

#include <cstdint>

#include "framework/data/data.h"
#include "framework/data/sampler.h"
#include "trainers/config.h"
#include "trainers/resume.h"

namespace lockstep {

/// A run's way: its steps, its samples and the place of its schedule. Samples count: a run that
/// goes on with another global batch takes the samples that are left in as many steps as that
/// needs, and its schedule goes from its place to its end in them.
struct Course {
  std::int64_t first_step = 0;      ///< steps done before
  std::int64_t first_sample = 0;    ///< samples consumed before
  std::int64_t total_steps = 0;     ///< with those before
  double schedule_place = 0;        ///< of the first step, in steps of the schedule's batch
  double schedule_advance = 1;      ///< in each step
  std::int64_t schedule_steps = 0;  ///< the schedule's length
  std::int64_t schedule_batch = 0;  ///< the global batch with which the run began

  /// The schedule's place at `step`.
  [[nodiscard]] double place_of(std::int64_t step) const {
    return schedule_place + static_cast<double>(step - first_step) * schedule_advance;
  }
};

/// The course of a run of `replicas`, from its beginning or from `point`. `sampler` is the run's.
[[nodiscard]] Course course_of(const Config& config, const DataSets& data, std::int64_t replicas,
                               const Sampler& sampler, const ResumePoint* point);

}  // namespace lockstep
