#pragma once

#include <cstdint>
#include <string>

namespace lockstep::bench {

/// What this machine's memory gives to so many threads at once.
struct MemoryBandwidth {
  std::int64_t threads = 0;
  double bytes_per_second = 0;  ///< read and written together
  std::string how;              ///< the kind of copy that was the fastest
};

/// Measures it: each thread copies a buffer of its own, far larger than any cache, onto another,
/// with normal stores, with non-temporal ones and by memcpy; the best of several rounds of all
/// counts. Takes about a second.
[[nodiscard]] MemoryBandwidth measure_memory_bandwidth(std::int64_t threads);

}  // namespace lockstep::bench
