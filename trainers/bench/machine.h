#pragma once

#include <cstdint>

#include <nlohmann/json.hpp>

namespace lockstep::bench {

/// Facts about the machine that figures depend on: cpu, instructions, cores that this process may
/// use, memory_bytes, last_cache_bytes, load (how many threads wanted to run in the last minute),
/// kernel, and the date in UTC.
[[nodiscard]] nlohmann::ordered_json machine_json();

/// The memory's bandwidth for so many threads at once: bytes_per_second, read and written together;
/// and how. Each thread copies between buffers of its own, which all together are far larger than
/// any cache: with normal stores, with non-temporal ones and by memcpy. Of several rounds of all
/// three the best counts. Takes a second, and that to touch the buffers.
[[nodiscard]] nlohmann::ordered_json bandwidth_json(std::int64_t threads);

}  // namespace lockstep::bench
