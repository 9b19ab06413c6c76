#include "trainers/bench/reports/json.h"

#include <cstddef>
#include <optional>

#include <nlohmann/json.hpp>

namespace lockstep::bench {
namespace {

using Json = nlohmann::ordered_json;

// `make` of each of `values`, with what it takes beside one.
template <typename Values, typename Make, typename... Context>
Json array_of(const Values& values, const Make& make, const Context&... context) {
  Json json = Json::array();
  for (const auto& value : values) json.push_back(make(context..., value));
  return json;
}

Json quartiles_json(const Quartiles& values) {
  return {{"median", values.median},
          {"lower_quartile", values.lower},
          {"upper_quartile", values.upper}};
}

Json measurement_json(const Measurement& measurement) {
  Json json{{"system", measurement.system.label},
            {"own", measurement.system.own},
            {"seconds", quartiles_json(measurement.seconds())},
            {"calls_per_sample", measurement.calls},
            {"samples", measurement.samples}};
  if (!measurement.note.empty()) json["note"] = measurement.note;
  return json;
}

Json limit_json(const MemoryBandwidth& limit) {
  return {
      {"bytes_per_second", limit.bytes_per_second}, {"threads", limit.threads}, {"how", limit.how}};
}

Json size_json(const OperationResult& result, const SizeResult& size) {
  const auto measured = [&](const Measurement& measurement) {
    Json json = measurement_json(measurement);
    json["bus_bytes_per_second"] = bus_bandwidth(result, size, measurement);
    if (result.network.hosts > 1) {
      json["sent_bytes"] = measurement.sent_bytes;
    } else if (measurement.system.own)
      json["share_of_limit"] = share_of_limit(result, size, measurement);
    return json;
  };
  return {{"bytes", size.bytes},
          {"moved_bytes", moved_bytes(result.operation, result.replicas, size.bytes)},
          {"measurements", array_of(size.measurements, measured)}};
}

Json network_json(const NetworkFacts& network) {
  return {{"hosts", network.hosts},
          {"mbit_per_second", network.rate_mbit},
          {"delay_ms", network.delay_ms}};
}

Json operation_json(const OperationResult& result) {
  Json json{{"operation", name_of(result.operation)}, {"replicas", result.replicas}};
  if (result.network.hosts > 1) {
    json["network"] = network_json(result.network);
  } else {
    json["limit"] = limit_json(result.limit);
  }
  json["sizes"] = array_of(result.sizes, size_json, result);
  json["notes"] = result.notes;
  return json;
}

Json parts_json(const StepParts& parts) {
  Json json = Json::object();
  for (std::size_t i = 0; i < parts.size(); ++i) json[kStepPartNames[i]] = parts[i];
  return json;
}

Json step_json(const TrainingResult& result, const Measurement& measurement) {
  Json json = measurement_json(measurement);
  if (is_reference(measurement)) json["reference"] = true;
  json["steps_per_second"] = 1 / measurement.seconds().median;
  json["measured_parts"] = parts_json(measurement.parts);
  json["exposed_parts"] = parts_json(exposed_parts(result, measurement));
  json["peak_bytes"] = measurement.memory.peak_bytes;
  json["host_bytes"] = measurement.memory.host_bytes;
  if (result.network.hosts > 1) json["sent_bytes"] = measurement.sent_bytes;
  if (const auto use = network_use(result, measurement)) {
    json["cable_seconds"] = use->cable;
    json["hidden_seconds"] = use->hidden;
  }
  if (!measurement.gradients_ready.empty()) json["gradients_ready"] = measurement.gradients_ready;
  const std::optional<Floor> floor = floor_of(result);
  if (floor && !is_reference(measurement))
    json["share_of_floor"] = floor->seconds() / measurement.seconds().median;
  if (const auto scaling = efficiency(result, measurement)) json["efficiency"] = *scaling;
  if (const Measurement* const plain = unaugmented(result, measurement))
    json["times_of_unaugmented"] = times_of(measurement, *plain);
  if (const auto compute = compute_ratio(result, measurement))
    json["compute_of_lockstep"] = 1 / *compute;
  if (!measurement.system.own || is_reference(measurement)) return json;
  for (const Measurement& peer : result.measurements) {
    if (peer.system.own || is_reference(peer)) continue;
    Json& ratios = json["of_peers"][peer.system.label];
    ratios["step"] = times_of(measurement, peer);
    if (const auto exposed = exposed_ratio(result, measurement, peer)) ratios["exposed"] = *exposed;
  }
  return json;
}

Json training_json(const TrainingResult& result) {
  Json json{{"model", result.model},
            {"parameters", result.parameters},
            {"replicas", result.replicas},
            {"batch", result.batch},
            {"limit", limit_json(result.limit)}};
  if (const std::optional<Floor> floor = floor_of(result)) {
    json["floor"] = {{"seconds", floor->seconds()},
                     {"forward_and_backward", floor->compute},
                     {"update", floor->update}};
  }
  if (result.network.hosts > 1) json["network"] = network_json(result.network);
  if (const auto bound = network_bound(result)) json["bound_seconds"] = *bound;
  json["measurements"] = array_of(result.measurements, step_json, result);
  return json;
}

// Of a part of checkpoints: median, quartiles and samples.
// The first `times` are seconds, the others bytes.
template <typename Names>
Json checkpoint_parts_json(const Names& names, std::size_t times,
                           const PartsMeasurement& measurement) {
  Json json{{"system", measurement.system.label},
            {"own", measurement.system.own},
            {"replicas", measurement.replicas}};
  for (std::size_t i = 0; i < names.size(); ++i) {
    Json& part = json[names[i]] = quartiles_json(measurement.of(i));
    part["unit"] = i < times ? "s" : "B";
    part["samples"] = measurement.samples[i];
  }
  if (!measurement.note.empty()) json["note"] = measurement.note;
  return json;
}

Json checkpoint_json(const CheckpointResult& result) {
  const auto measured = [&](const PartsMeasurement& measurement) {
    Json json = checkpoint_parts_json(kCheckpointPartNames, 3, measurement);
    json["share_of_limit"] = share_of_limit(result, measurement);
    return json;
  };
  const auto reloaded = [](const PartsMeasurement& measurement) {
    return checkpoint_parts_json(kReloadPartNames, 1, measurement);
  };
  return {{"folder", result.folder},
          {"file_system", result.file_system},
          {"replicas", result.replicas},
          {"limits", checkpoint_parts_json(kCheckpointLimitNames, kCheckpointLimitNames.size(),
                                           result.limits)},
          {"measurements", array_of(result.measurements, measured)},
          {"reloads", array_of(result.reloads, reloaded)}};
}

Json part_json(const PartResult& result) {
  return {{"name", result.name},
          {"what", result.what},
          {"unit", result.unit},
          {"amount", result.amount},
          {"measurements", array_of(result.measurements, measurement_json)}};
}

// The part that all reports have.
Json heading_json(const std::string& measurement, const Heading& heading) {
  const MachineFacts& machine = heading.machine;
  const auto system_json = [](const SystemFacts& system) {
    return Json{{"label", system.label}, {"version", system.version}, {"own", system.own}};
  };
  const auto left_out_json = [](const LeftOut& system) {
    return Json{{"name", system.name}, {"reason", system.reason}};
  };
  return {{"measurement", measurement},
          {"lockstep", LOCKSTEP_VERSION},
          {"machine",
           {{"cpu", machine.cpu},
            {"instructions", machine.instructions},
            {"cores", machine.cores},
            {"memory_bytes", machine.memory_bytes},
            {"last_cache_bytes", machine.last_cache_bytes},
            {"load", machine.load},
            {"kernel", machine.kernel},
            {"date", machine.date}}},
          {"dtype", "float32"},
          {"systems", array_of(heading.systems, system_json)},
          {"left_out", array_of(heading.left_out, left_out_json)}};
}

}  // namespace

std::string to_json(const CollectivesReport& report) {
  Json json = heading_json("collectives", report.heading);
  json["results"] = array_of(report.results, operation_json);
  return json.dump(2) + "\n";
}

std::string to_json(const VdotReport& report) {
  Json json = heading_json("vdot", report.heading);
  json["replicas"] = report.replicas;
  json["bytes"] = report.bytes;
  json["measurements"] = array_of(report.measurements, measurement_json);
  return json.dump(2) + "\n";
}

std::string to_json(const TrainingReport& report) {
  Json json = heading_json("training", report.heading);
  json["optimizer"] = "adam";
  json["results"] = array_of(report.results, training_json);
  json["launches"] = {{"replicas", report.launched_replicas},
                      {"measurements", array_of(report.launches, measurement_json)}};
  for (const TrainingResult& result : report.growths) {
    for (const Measurement& each : result.measurements) {
      json["memory"].push_back({{"model", result.model},
                                {"replicas", result.replicas},
                                {"steps", report.steps},
                                {"system", each.system.label},
                                {"first_bytes", each.memory.first_bytes},
                                {"host_bytes", each.memory.host_bytes}});
    }
  }
  return json.dump(2) + "\n";
}

std::string to_json(const CheckpointReport& report) {
  Json json = heading_json("checkpoint", report.heading);
  json["optimizer"] = "adam";
  json["parameters"] = report.parameters;
  json["bytes"] = report.bytes;
  json["results"] = array_of(report.results, checkpoint_json);
  return json.dump(2) + "\n";
}

std::string to_json(const PartsReport& report) {
  Json json = heading_json(report.measurement, report.heading);
  json["results"] = array_of(report.results, part_json);
  return json.dump(2) + "\n";
}

}  // namespace lockstep::bench
