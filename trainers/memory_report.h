#pragma once

#include <cstdint>
#include <string>

#include "framework/data/data.h"
#include "framework/telemetry/metrics.h"
#include "framework/training/memory_prediction.h"
#include "trainers/config.h"

namespace lockstep {

/// Predicts the memory of the model's training by category, without allocating any.
/// `link` is what a trainer has measured.
[[nodiscard]] HostMemoryUse predicted_memory(const Config& config, const DataSets& data,
                                             const LinkCost& link = {});

/// Throws ValueError with the numbers if this host has less memory left than that.
void check_memory(const Config& config, const DataSets& data);

/// A table for people: memory of a replica and of the host, and whether it fits.
[[nodiscard]] std::string prediction_text(const Config& config, const DataSets& data);
/// The same, as train --dry-run prints it.
[[nodiscard]] std::string dry_run_text(const Config& config, const DataSets& data);

/// Two lines for people: measured memory beside predicted memory.
[[nodiscard]] std::string memory_text(const MemoryReport& report);

}  // namespace lockstep
