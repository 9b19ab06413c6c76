#pragma once

#include <cstdint>
#include <string>

namespace lockstep::bench {

/// What figures depend on.
struct MachineFacts {
  std::string cpu;           ///< its model's name
  std::int64_t cores = 0;    ///< that this process may run on
  std::string instructions;  ///< the widest vectors: "AVX-512", "AVX2" or ""
  std::int64_t memory_bytes = 0;
  std::int64_t last_cache_bytes = 0;
  double load = 0;     ///< how many threads wanted to run in the last minute, on average
  std::string kernel;  ///< "Linux 6.1.0"
  std::string date;    ///< today, in UTC: "2026-11-21"
};

[[nodiscard]] MachineFacts machine_facts();

}  // namespace lockstep::bench
