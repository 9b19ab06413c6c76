#pragma once

#include <cstdint>

#include "trainers/bench/reports/report.h"

namespace lockstep::bench {

[[nodiscard]] MachineFacts machine_facts();

/// Measures the memory's bandwidth. Each thread copies between buffers of its own, which all
/// together are far larger than any cache: with normal stores, with non-temporal ones and by
/// memcpy. Of several rounds of all three the best counts. Takes a second, and that to touch the
/// buffers.
[[nodiscard]] MemoryBandwidth measure_memory_bandwidth(std::int64_t threads);

}  // namespace lockstep::bench
