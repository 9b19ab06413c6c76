#pragma once

#include <cstddef>
#include <cstdint>
#include <string>

#include "framework/data/data.h"
#include "framework/telemetry/metrics.h"
#include "framework/training/memory_prediction.h"
#include "framework/training/zero.h"
#include "trainers/config/config.h"

namespace lockstep {

/// Predicts the memory of the model's training by category, without allocating any.
/// `link` is ZeroTrainer::link_cost().
[[nodiscard]] HostMemoryUse predicted_memory(const Config& config, const DataSets& data,
                                             const LinkCost& link = {});

/// Throws ValueError with the numbers if this host has less memory left than that, or the limits of
/// a process (ulimit -v, -d) leave less than its part.
void check_memory(const Config& config, const DataSets& data);

/// A table for people: memory of a replica and of the host, and whether it fits. `ending` follows
/// on its last line.
[[nodiscard]] std::string prediction_text(const Config& config, const DataSets& data,
                                          const char* ending = "");

/// What a replica's trainer does not know of its memory, in bytes.
struct ReplicaMemory {
  std::size_t resident_at_start = 0;  ///< of its process
  std::int64_t checkpoint = 0;        ///< that are staged
  std::int64_t activations = 0;       ///< of a microbatch
};

/// The memory that the job takes, beside what was predicted: of the replicas of host 0 the largest
/// of each category, the sum, and the sum of what is resident. All replicas together; the result is
/// the same on each.
[[nodiscard]] MemoryReport memory_report(const Config& config, const DataSets& data,
                                         const ZeroTrainer& trainer, const ReplicaMemory& replica);

/// Two lines for people: measured memory beside predicted memory.
[[nodiscard]] std::string memory_text(const MemoryReport& report);

}  // namespace lockstep
