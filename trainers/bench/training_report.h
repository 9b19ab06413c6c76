#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "trainers/bench/machine_facts.h"
#include "trainers/bench/measure.h"
#include "trainers/bench/memory_bandwidth.h"
#include "trainers/bench/report.h"
#include "trainers/bench/step_parts.h"

namespace lockstep::bench {

/// What one system's training step took.
struct StepMeasurement {
  std::string name;   ///< the system's, as --systems has it: "lockstep", "ddp"
  Measurement step;   ///< its label is the system's: "stage 0", "ddp 1.13"
  StepParts parts{};  ///< medians, as the replicas measured them
  MemoryUse memory;
};

/// One model on one number of replicas.
struct TrainingResult {
  std::string model;
  std::int64_t parameters = 0;
  std::int64_t replicas = 0;
  std::int64_t batch = 0;                     ///< samples a replica
  MemoryBandwidth limit;                      ///< of as many threads as replicas can run at once
  std::vector<StepMeasurement> measurements;  ///< in the order of the report's systems
};

/// All that `bench training` finds out.
struct TrainingReport {
  MachineFacts machine;
  std::vector<SystemFacts> systems;
  std::vector<LeftOut> left_out;
  std::vector<TrainingResult> results;
  std::int64_t launched_replicas = 0;
  std::vector<Measurement> launches;  ///< seconds from a launch to its first step
};

/// What a step takes at the least.
struct Floor {
  double compute = 0;  ///< forward and backward, as "alone" takes them
  double update = 0;   ///< Adam's 28 bytes a parameter, each once, at the memory's speed
  [[nodiscard]] double seconds() const { return compute + update; }
};

/// The result's floor; none without "alone".
[[nodiscard]] std::optional<Floor> floor_of(const TrainingResult& result);

/// The parts of a system's step with the communication that is exposed: forward, backward and
/// update are what they take alone, and all else that the step takes longer is communication. For
/// Lockstep's, "alone" has these; for a peer's the plain loop of its version, where zero's update
/// is its replica's share of that. As the replicas measured them if there is no such.
[[nodiscard]] StepParts exposed_parts(const TrainingResult& result,
                                      const StepMeasurement& measurement);

/// Weak scaling: the time of one replica over the time here, both from the same turns. One replica
/// trains in the first of Lockstep's ways, or in the plain loop of a peer's version. None if the
/// result has no such time.
[[nodiscard]] std::optional<double> efficiency(const TrainingResult& result,
                                               const StepMeasurement& measurement);

/// What is measured for the sake of the others: what they take alone, and one replica of them.
[[nodiscard]] bool is_reference(const StepMeasurement& measurement);

/// The name of systems that have one replica among others that have more, and what is appended to
/// the label of the system that they are.
inline constexpr const char* kSingle = "single";
inline constexpr const char* kSingleSuffix = ", 1 replica";

/// The tables of a result, and of the launches.
[[nodiscard]] std::string result_text(const TrainingResult& result);
[[nodiscard]] std::string launches_text(const TrainingReport& report);

}  // namespace lockstep::bench
