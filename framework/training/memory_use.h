#pragma once

#include <cstdint>

namespace lockstep {

/// Bytes by what they are for.
struct MemoryUse {
  std::int64_t parameters = 0;
  std::int64_t gradients = 0;
  std::int64_t optimizer_state = 0;
  std::int64_t communication = 0;  ///< staging of buckets, gathered blocks, what compression keeps
  /// How much of `parameters` all replicas of the host hold together, once.
  std::int64_t shared_parameters = 0;

  [[nodiscard]] std::int64_t total() const noexcept {
    return parameters + gradients + optimizer_state + communication;
  }
  bool operator==(const MemoryUse&) const = default;
};

/// What the replicas of a host take.
struct HostMemoryUse {
  MemoryUse largest;  ///< of a replica: by category, the most that any has
  MemoryUse host;     ///< of all of them: what they hold together counts once
};

}  // namespace lockstep
