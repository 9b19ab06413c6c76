#pragma once

#include <cstdint>

#include "trainers/bench/reports/report.h"

namespace lockstep::bench {

[[nodiscard]] MachineFacts machine_facts();

/// Measures the memory's bandwidth: each thread copies a buffer of its own, far larger than any
/// cache, onto another, with normal stores, with non-temporal ones and by memcpy; the best of
/// several rounds of all counts. Takes about a second.
[[nodiscard]] MemoryBandwidth measure_memory_bandwidth(std::int64_t threads);

}  // namespace lockstep::bench
