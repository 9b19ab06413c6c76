#pragma once

#include <cstdint>
#include <string>

#include "framework/data/data.h"
#include "framework/telemetry/metrics.h"
#include "framework/training/memory_prediction.h"
#include "trainers/config.h"

namespace lockstep {

/// What the model's training will take by category, without allocating any of it.
[[nodiscard]] HostMemoryUse predicted_memory(const Config& config, const DataSets& data);

/// Throws ValueError with the numbers if this host has not as much left.
void check_memory(const Config& config, const DataSets& data);

/// A table of it for people: of a replica and of the host, and whether it fits.
[[nodiscard]] std::string dry_run_text(const Config& config, const DataSets& data);

/// Two lines of what was measured beside what was predicted.
[[nodiscard]] std::string memory_text(const MemoryReport& report);

}  // namespace lockstep
