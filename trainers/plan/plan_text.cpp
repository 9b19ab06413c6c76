#include "trainers/plan/plan_text.h"

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <utility>
#include <vector>

#include "framework/base/memory.h"
#include "framework/base/text.h"
#include "framework/base/text_table.h"
#include "framework/formats/csv.h"

namespace lockstep::plan {
namespace {

using Json = nlohmann::ordered_json;

std::string seconds_text(double seconds) {
  if (seconds < 1e-3) return formatted("%.3g us", seconds * 1e6);
  if (seconds < 1) return formatted("%.3g ms", seconds * 1e3);
  return formatted("%.3g s", seconds);
}

std::string hours_text(double hours) {
  return formatted(hours < 100 ? "%.3g" : "%.0f", hours);
}

// What a table shows of a job that has no step.
std::vector<std::string> cells_of(const PlannedJob& job) {
  std::vector<std::string> cells{str(job.hosts), str(job.replicas), str(job.stage)};
  const auto add = [&](const std::string& text) { cells.push_back(job.step_s > 0 ? text : "-"); };
  add(str(job.samples));
  add(seconds_text(job.step_s));
  add(seconds_text(job.exposed_s));
  add(formatted("%.0f%%", 100 * job.efficiency));
  add(text_of_bytes(job.memory));
  add(text_of_bytes(job.bytes));
  add(str(job.connections));
  add(seconds_text(job.start.seconds));
  add(str(job.steps));
  add(hours_text(job.hours));
  add(hours_text(job.host_hours()));
  cells.push_back(job.breaks.empty() ? "" : cut(job.breaks, 160));
  return cells;
}

// Warns if other programs had the cores while the steps were measured.
std::string disturbance_text(const StepProfile& own) {
  constexpr double kMuch = 0.1;
  if (own.waited < kMuch) return "";
  return formatted(
      "Threads waited for a core in %.0f%% of their time: other programs run here, or it has too "
      "few cores.\n",
      100 * own.waited);
}

// What grows, and how, where there are hosts.
std::string growth_text(const Plan& plan) {
  const auto hosts_of = [](const PlannedJob& job) { return job.step_s == 0 ? 0 : job.hosts; };
  const auto most = std::ranges::max_element(plan.jobs, {}, hosts_of);
  if (hosts_of(*most) <= 1) return "";
  return str("On ", counted(most->hosts, "host"), " the replicas of each connect to ",
             counted(most->connections, "other"), " at most. Host 0's launcher has ",
             counted(most->hosts - 1, "link"), " to others, and sends ", most->start.messages,
             " messages, ", text_of_bytes(most->start.bytes),
             ", at the start.\nWhat replicas tell each other in each step grows with their number, "
             "too.\n");
}

Json json_of(const PlannedJob& job) {
  Json json{{"hosts", job.hosts}, {"replicas", job.replicas}, {"zero_stage", job.stage}};
  if (job.step_s > 0) {
    json.update({{"step_s", job.step_s},
                 {"exposed_s", job.exposed_s},
                 {"efficiency", job.efficiency},
                 {"memory", job.memory},
                 {"messages", job.messages},
                 {"bytes", job.bytes},
                 {"connections", job.connections},
                 {"start_s", job.start.seconds},
                 {"start_messages", job.start.messages},
                 {"start_bytes", job.start.bytes},
                 {"samples", job.samples},
                 {"steps", job.steps},
                 {"hours", job.hours},
                 {"host_hours", job.host_hours()}});
  }
  json["breaks"] = job.breaks;
  return json;
}

}  // namespace

std::string plan_text(const Plan& plan) {
  const StepProfile& own = plan.profile;
  TextTable rows{{"hosts", "replicas", "stage", "batch", "step", "exposed", "efficiency", "memory",
                  "sent", "connections", "start", "steps", "hours", "host-hours", "breaks"}};
  for (const PlannedJob& job : plan.jobs) rows.push_back(cells_of(job));
  return str(counted(plan.parameters, "parameter"), "; a microbatch of ",
             counted(own.samples, "sample"), " takes ", seconds_text(own.data), " to make, ",
             seconds_text(own.forward), " forward, ", seconds_text(own.backward + own.rest),
             " backward; an update of all ", seconds_text(own.update), "\n(medians of ",
             counted(own.steps, "step"), " on ", counted(own.replicas, "replica"),
             " of this host at once). Links between hosts: ", plan.request.link, ".\n",
             disturbance_text(own), "\n", table_text(rows, "rrrrrrrrrrrrrrl"), "\n",
             "batch: samples a step; memory: of a replica, of what its host has once its share; "
             "sent: by a host in a step; connections: of a host's replicas to other hosts; hours: "
             "without evaluations and checkpoints\n",
             growth_text(plan));
}

Json plan_json(const Plan& plan) {
  const StepProfile& own = plan.profile;
  Json jobs = Json::array();
  for (const PlannedJob& job : plan.jobs) jobs.push_back(json_of(job));
  return {{"parameters", plan.parameters},
          {"host_replicas", plan.request.host_replicas},
          {"link",
           {{"latency_s", plan.request.link.latency},
            {"bytes_per_s", plan.request.link.bytes_per_second}}},
          {"measured",
           {{"replicas", own.replicas},
            {"samples", own.samples},
            {"steps", own.steps},
            {"data_s", own.data},
            {"forward_s", own.forward},
            {"backward_s", own.backward},
            {"rest_s", own.rest},
            {"update_s", own.update},
            {"first_s", own.first},
            {"waited", own.waited},
            {"activations", own.activations}}},
          {"jobs", jobs}};
}

std::string plan_csv(const Plan& plan) {
  // All columns, whether the first job has a step or not.
  const Json columns = json_of({.step_s = 1});
  std::vector<std::string> header;
  for (const auto& [name, value] : columns.items()) header.push_back(name);
  std::string text = formats::csv_line(header);
  for (const PlannedJob& job : plan.jobs) {
    const Json json = json_of(job);
    text += formats::csv_line(mapped(header, [&](const std::string& name) {
      const auto value = json.find(name);
      if (value == json.end()) return std::string();
      return value->is_string() ? value->get<std::string>() : value->dump();
    }));
  }
  return text;
}

}  // namespace lockstep::plan
