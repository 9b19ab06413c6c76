#pragma once

#include <string>
#include <vector>

#include "framework/optim/optimizer_options.h"
#include "framework/optim/schedule.h"
#include "trainers/strict_yaml.h"

namespace lockstep {

/// The sections of a config that say how parameters are updated.

[[nodiscard]] SectionSchema optimizer_schema();
/// `group_places` gains where each of the groups' patterns was written, as messages begin.
[[nodiscard]] OptimizerOptions read_optimizer(YamlDocument& document,
                                              std::vector<std::string>& group_places);

[[nodiscard]] SectionSchema schedule_schema();
/// `warmup_place` becomes where the warm-up was written.
[[nodiscard]] ScheduleOptions read_schedule(YamlDocument& document, std::string& warmup_place);

}  // namespace lockstep
