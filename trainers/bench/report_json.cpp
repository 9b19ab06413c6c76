#include "trainers/bench/report_json.h"

#include <cstddef>
#include <optional>
#include <utility>

#include <fcntl.h>
#include <nlohmann/json.hpp>

#include "framework/telemetry/file.h"

namespace lockstep::bench {
namespace {

using Json = nlohmann::ordered_json;

Json quartiles_json(const Quartiles& seconds) {
  return {{"median", seconds.median},
          {"lower_quartile", seconds.lower},
          {"upper_quartile", seconds.upper}};
}

Json measurement_json(const Measurement& measurement) {
  Json json{{"system", measurement.label},
            {"seconds", quartiles_json(measurement.seconds)},
            {"calls_per_sample", measurement.calls},
            {"samples", measurement.samples}};
  if (!measurement.note.empty()) json["note"] = measurement.note;
  return json;
}

Json size_json(const CollectivesReport& report, const OperationResult& result,
               const SizeResult& size) {
  Json measurements = Json::array();
  for (std::size_t i = 0; i < size.measurements.size(); ++i) {
    const Measurement& measurement = size.measurements[i];
    Json json = measurement_json(measurement);
    json["bus_bytes_per_second"] = bus_bandwidth(result, size, measurement);
    if (report.systems[i].own) json["share_of_limit"] = share_of_limit(result, size, measurement);
    measurements.push_back(std::move(json));
  }
  return {{"bytes", size.bytes},
          {"moved_bytes", moved_bytes(result.operation, result.replicas, size.bytes)},
          {"measurements", std::move(measurements)}};
}

Json limit_json(const MemoryBandwidth& limit) {
  return {
      {"bytes_per_second", limit.bytes_per_second}, {"threads", limit.threads}, {"how", limit.how}};
}

Json result_json(const CollectivesReport& report, const OperationResult& result) {
  Json sizes = Json::array();
  for (const SizeResult& size : result.sizes) sizes.push_back(size_json(report, result, size));
  return {{"operation", name_of(result.operation)},
          {"replicas", result.replicas},
          {"limit", limit_json(result.limit)},
          {"sizes", std::move(sizes)},
          {"notes", result.notes}};
}

Json machine_json(const MachineFacts& machine) {
  return {{"cpu", machine.cpu},
          {"instructions", machine.instructions},
          {"cores", machine.cores},
          {"memory_bytes", machine.memory_bytes},
          {"last_cache_bytes", machine.last_cache_bytes},
          {"load", machine.load},
          {"kernel", machine.kernel},
          {"date", machine.date}};
}

// What all reports have.
template <typename Report>
Json heading_json(const char* measurement, const Report& report) {
  Json systems = Json::array();
  for (const SystemFacts& system : report.systems) {
    systems.push_back({{"label", system.label}, {"version", system.version}, {"own", system.own}});
  }
  Json left_out = Json::array();
  for (const LeftOut& system : report.left_out) {
    left_out.push_back({{"name", system.name}, {"reason", system.reason}});
  }
  return {{"measurement", measurement},
          {"lockstep", LOCKSTEP_VERSION},
          {"machine", machine_json(report.machine)},
          {"dtype", "float32"},
          {"systems", std::move(systems)},
          {"left_out", std::move(left_out)}};
}

Json parts_json(const StepParts& parts) {
  Json json = Json::object();
  for (std::size_t i = 0; i < parts.size(); ++i) json[kStepPartNames[i]] = parts[i];
  return json;
}

Json step_json(const TrainingResult& result, const StepMeasurement& measurement) {
  Json json = measurement_json(measurement.step);
  json["steps_per_second"] = 1 / measurement.step.seconds.median;
  json["measured_parts"] = parts_json(measurement.parts);
  json["exposed_parts"] = parts_json(exposed_parts(result, measurement));
  json["peak_bytes"] = measurement.memory.peak_bytes;
  json["host_bytes"] = measurement.memory.host_bytes;
  const std::optional<Floor> floor = floor_of(result);
  if (floor && !is_reference(measurement))
    json["share_of_floor"] = floor->seconds() / measurement.step.seconds.median;
  const std::optional<double> scaling = efficiency(result, measurement);
  if (scaling && !is_reference(measurement)) json["efficiency"] = *scaling;
  return json;
}

Json training_json(const TrainingResult& result) {
  Json measurements = Json::array();
  for (const StepMeasurement& measurement : result.measurements)
    measurements.push_back(step_json(result, measurement));
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
  json["measurements"] = std::move(measurements);
  return json;
}

}  // namespace

std::string to_json(const CollectivesReport& report) {
  Json json = heading_json("collectives", report);
  json["results"] = Json::array();
  for (const OperationResult& result : report.results)
    json["results"].push_back(result_json(report, result));
  return json.dump(2) + "\n";
}

std::string to_json(const VdotReport& report) {
  Json json = heading_json("vdot", report);
  json["replicas"] = report.replicas;
  json["bytes"] = report.bytes;
  json["measurements"] = Json::array();
  for (const Measurement& measurement : report.measurements) {
    json["measurements"].push_back(measurement_json(measurement));
  }
  return json.dump(2) + "\n";
}

std::string to_json(const TrainingReport& report) {
  Json json = heading_json("training", report);
  json["optimizer"] = "adam";
  json["results"] = Json::array();
  for (const TrainingResult& result : report.results)
    json["results"].push_back(training_json(result));
  json["launches"] = {{"replicas", report.launched_replicas}, {"measurements", Json::array()}};
  for (const Measurement& launch : report.launches)
    json["launches"]["measurements"].push_back(measurement_json(launch));
  return json.dump(2) + "\n";
}

void write_file(const std::filesystem::path& path, const std::string& text) {
  File(path, O_CREAT | O_WRONLY | O_TRUNC).write(text);
}

}  // namespace lockstep::bench
