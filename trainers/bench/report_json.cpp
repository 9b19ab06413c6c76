#include "trainers/bench/report_json.h"

#include <cstddef>

#include <nlohmann/json.hpp>

namespace lockstep::bench {
namespace {

using Json = nlohmann::ordered_json;

Json quartiles_json(const Quartiles& seconds) {
  return {{"median", seconds.median},
          {"lower_quartile", seconds.lower},
          {"upper_quartile", seconds.upper}};
}

Json size_json(const CollectivesReport& report, const OperationResult& result,
               const SizeResult& size) {
  Json measurements = Json::array();
  for (std::size_t i = 0; i < size.measurements.size(); ++i) {
    const Measurement& measurement = size.measurements[i];
    Json json{{"system", measurement.label},
              {"seconds", quartiles_json(measurement.seconds)},
              {"bus_bytes_per_second", bus_bandwidth(result, size, measurement)},
              {"calls_per_sample", measurement.calls},
              {"samples", measurement.samples}};
    if (report.systems[i].own) json["share_of_limit"] = share_of_limit(result, size, measurement);
    if (!measurement.note.empty()) json["note"] = measurement.note;
    measurements.push_back(std::move(json));
  }
  return {{"bytes", size.bytes},
          {"moved_bytes", moved_bytes(result.operation, result.replicas, size.bytes)},
          {"measurements", std::move(measurements)}};
}

Json result_json(const CollectivesReport& report, const OperationResult& result) {
  Json sizes = Json::array();
  for (const SizeResult& size : result.sizes) sizes.push_back(size_json(report, result, size));
  return {{"operation", name_of(result.operation)},
          {"replicas", result.replicas},
          {"limit",
           {{"bytes_per_second", result.limit.bytes_per_second},
            {"threads", result.limit.threads},
            {"how", result.limit.how}}},
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

}  // namespace

std::string to_json(const CollectivesReport& report) {
  Json systems = Json::array();
  for (const SystemFacts& system : report.systems) {
    systems.push_back({{"label", system.label}, {"version", system.version}, {"own", system.own}});
  }
  Json left_out = Json::array();
  for (const LeftOut& system : report.left_out) {
    left_out.push_back({{"name", system.name}, {"reason", system.reason}});
  }
  Json results = Json::array();
  for (const OperationResult& result : report.results)
    results.push_back(result_json(report, result));
  const Json json{{"benchmark", "collectives"},
                  {"lockstep", LOCKSTEP_VERSION},
                  {"machine", machine_json(report.machine)},
                  {"dtype", "float32"},
                  {"systems", std::move(systems)},
                  {"left_out", std::move(left_out)},
                  {"results", std::move(results)}};
  return json.dump(2) + "\n";
}

}  // namespace lockstep::bench
