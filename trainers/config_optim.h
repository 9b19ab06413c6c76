#pragma once

#include "framework/optim/optimizer_options.h"
#include "framework/optim/schedule.h"
#include "trainers/strict_yaml.h"

namespace lockstep {

/// The sections of a config that say how parameters are updated.

[[nodiscard]] SectionSchema optimizer_schema();
[[nodiscard]] OptimizerOptions read_optimizer(YamlDocument& document);

[[nodiscard]] SectionSchema schedule_schema();
[[nodiscard]] ScheduleOptions read_schedule(YamlDocument& document);

}  // namespace lockstep
