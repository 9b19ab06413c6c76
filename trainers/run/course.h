#pragma once

#include <cstdint>
#include <functional>
#include <string>

#include "framework/data/data.h"
#include "trainers/config/config.h"
#include "trainers/run/resume.h"

namespace lockstep {

/// A run's steps and samples, and its place in the learning rate's schedule. A run that goes on
/// with another global batch begins a new phase: it takes the remaining samples, in as many steps
/// as they need, and spreads the rest of the schedule evenly over these steps. If schedule.steps
/// fixes the schedule's length, it goes on by samples instead, and stays at its end.
struct Course {
  std::int64_t first_step = 0;      ///< steps done before
  std::int64_t first_sample = 0;    ///< samples consumed before
  std::int64_t total_steps = 0;     ///< with those before
  std::int64_t batch = 0;           ///< the global batch
  std::int64_t schedule_batch = 0;  ///< the one with which the run began
  std::int64_t schedule_steps = 0;  ///< the schedule's length, in steps of that batch
  bool is_fixed = false;            ///< as schedule.steps says, whatever the run's length
  std::int64_t phase_step = 0;      ///< the first step of this phase
  std::int64_t phase_steps = 0;     ///< how many steps it has
  double phase_place = 0;           ///< the schedule's place at its first step

  /// The schedule's place at `step`.
  [[nodiscard]] double place_of(std::int64_t step) const;
};

/// The course of a run, from its beginning or from `point`.
[[nodiscard]] Course course_of(const Config& config, const DataSets& data,
                               const ResumePoint* point);

/// The learning rate of each step.
[[nodiscard]] std::function<double(std::int64_t step)> rate_of(const Config& config,
                                                               const Course& course);

/// For people, where the run goes on from `point` with another learning rate than it would have had
/// there, because its schedule has got another length; "" if not. `course` is the run's.
[[nodiscard]] std::string jump_text(const Config& config, const Course& course,
                                    const ResumePoint& point);

/// For people, where trainer.steps counts steps of the global batch with which the run began, and
/// the run takes another number of steps to its end with its own; "" if not.
[[nodiscard]] std::string length_text(const Config& config, const Course& course);

/// Adds the course to what a checkpoint says, for course_of().
void add_course(const Course& course, CheckpointInfo& info);

}  // namespace lockstep
