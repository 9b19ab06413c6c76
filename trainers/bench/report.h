#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "trainers/bench/machine_facts.h"
#include "trainers/bench/measure.h"
#include "trainers/bench/memory_bandwidth.h"
#include "trainers/bench/operation.h"

namespace lockstep::bench {

/// A system of a report, by its label in the measurements.
struct SystemFacts {
  std::string label;
  std::string version;
  bool own = false;
};

/// A system that was not measured, and why.
struct LeftOut {
  std::string name;
  std::string reason;
};

/// All systems on one size; in the order of the report's.
struct SizeResult {
  std::int64_t bytes = 0;
  std::vector<Measurement> measurements;
};

/// One operation on one number of replicas.
struct OperationResult {
  Operation operation = Operation::all_reduce;
  std::int64_t replicas = 0;
  MemoryBandwidth limit;  ///< of as many threads as replicas can run at once
  std::vector<SizeResult> sizes;
  std::vector<std::string> notes;  ///< what a reader should know of these figures
};

/// All that `bench collectives` finds out.
struct CollectivesReport {
  MachineFacts machine;
  std::vector<SystemFacts> systems;
  std::vector<LeftOut> left_out;
  std::vector<OperationResult> results;
};

/// All that `bench vdot` finds out.
struct VdotReport {
  MachineFacts machine;
  std::vector<SystemFacts> systems;
  std::vector<LeftOut> left_out;
  std::int64_t replicas = 0;
  std::int64_t bytes = 0;  ///< of each of the two arrays
  std::vector<Measurement> measurements;
};

/// Bytes a second, as NCCL's tests count them; see bus_bytes().
[[nodiscard]] double bus_bandwidth(const OperationResult& result, const SizeResult& size,
                                   const Measurement& measurement);

/// Part of the memory's bandwidth that a system makes use of: 1 if it takes as long as the bytes
/// that must move (moved_bytes()) take at the least. What stays in a cache may be faster than that.
[[nodiscard]] double share_of_limit(const OperationResult& result, const SizeResult& size,
                                    const Measurement& measurement);

}  // namespace lockstep::bench
