#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "framework/comm/link_speed.h"
#include "framework/data/data.h"
#include "trainers/config/config.h"
#include "trainers/plan/step_profile.h"

namespace lockstep::plan {

/// What is to be planned.
struct PlanRequest {
  std::vector<std::int64_t> hosts{};
  std::int64_t host_replicas = 1;
  std::vector<int> stages{0, 1, 2, 3};
  comm::LinkSpeed link = comm::kLoopback;
};

/// How the job begins on some hosts, beside what each host does alone.
struct StartUp {
  double seconds = 0;         ///< until the first step begins
  std::int64_t messages = 0;  ///< that host 0's launcher sends
  std::int64_t bytes = 0;     ///< likewise
};

/// The job on so many hosts at a stage of ZeRO.
struct PlannedJob {
  std::int64_t hosts = 1;
  std::int64_t replicas = 1;
  int stage = 0;
  std::int64_t steps = 0;        ///< of the whole run
  std::int64_t samples = 0;      ///< a step, of all replicas
  double step_s = 0;             ///< seconds of a step
  double exposed_s = 0;          ///< of these, those in which replicas wait for communication
  double efficiency = 1;         ///< the part of a step in which replicas compute
  std::int64_t memory = 0;       ///< bytes that a replica takes, its share of what a host has once
  std::int64_t messages = 0;     ///< that a host sends in a step, at most
  std::int64_t bytes = 0;        ///< likewise
  std::int64_t connections = 0;  ///< that a host's replicas have to other hosts, at most
  StartUp start{};
  double hours = 0;  ///< of the whole run, with its start
  /// What does not work first: "config: …", "batch: …", "memory: …", "store: …" or "link: …"; ""
  /// if all does.
  std::string breaks = {};

  [[nodiscard]] double host_hours() const { return static_cast<double>(hosts) * hours; }
};

/// A plan, with what it was made from.
struct Plan {
  PlanRequest request{};
  StepProfile profile{};
  std::int64_t parameters = 0;
  std::vector<PlannedJob> jobs{};  ///< by hosts, then by stage
};

/// ValueError for numbers that make no sense.
void check_request(const PlanRequest& request);

/// Predicts the job of `config` on hosts like this one. What a replica computes is what `profile`
/// has measured, by turns where a host has more replicas than ran at once; what hosts send each
/// other follows from the schedules, bucket sizes and pieces that they would use, over a simulated
/// network; memory is that of --dry-run. Throws as check_request().
[[nodiscard]] Plan plan_of(const Config& config, const DataSets& data, const StepProfile& profile,
                           const PlanRequest& request);

/// A link by name, "1", "10", "25" or "100" (Gbit/s of Ethernet, with what its headers leave), or
/// by its figures, as LinkSpeed::parse() takes them. ValueError.
[[nodiscard]] comm::LinkSpeed link_called(const std::string& text);

}  // namespace lockstep::plan
