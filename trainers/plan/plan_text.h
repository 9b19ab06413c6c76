#pragma once

#include <string>

#include <nlohmann/json.hpp>

#include "trainers/plan/plan.h"

namespace lockstep::plan {

/// For people: what it was made from, a row a job, and what grows faster than the number of hosts'
/// logarithm.
[[nodiscard]] std::string plan_text(const Plan& plan);

/// For programs: all that PlannedJob has, in seconds and bytes; what does not work is "breaks".
[[nodiscard]] nlohmann::ordered_json plan_json(const Plan& plan);
/// Its jobs alone, a row each, with a header.
[[nodiscard]] std::string plan_csv(const Plan& plan);

/// A picture of the jobs by their number of hosts as SVG, for browsers and pages: the time of a
/// step, the part of it in which replicas compute, memory and connections, a curve a stage.
[[nodiscard]] std::string plan_svg(const Plan& plan);

}  // namespace lockstep::plan
