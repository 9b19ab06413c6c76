#pragma once

#include <chrono>
#include <cstdint>
#include <string>
#include <vector>

#include "framework/base/range.h"
#include "framework/base/record.h"
#include "framework/watch/board.h"
#include "framework/watch/long_waits.h"

namespace lockstep::replicas {

/// A call in which replicas have waited for long.
struct Stall {
  std::uint64_t key = 0;     ///< of the call's group
  std::uint64_t number = 0;  ///< of the call on that group
  int times = 0;             ///< how often it was found, from 1
  std::string text{};  ///< "stalled for 60 s: replica 0 waits in psum …: replica 2 has not …"

  LOCKSTEP_FIELDS(key, number, times, text)
  bool operator==(const Stall&) const = default;
};

/// Finds calls in which members have waited for a limit, and again for twice, four times … the
/// limit. For one thread.
class StallWatch {
 public:
  /// A limit of zero: never.
  StallWatch(const watch::Board& board, const Range& workers, std::chrono::milliseconds limit)
      : board_(board), waits_(board, workers, limit, std::chrono::hours(24 * 365)) {}

  /// A call counts once for all its members. Look often, compared with the limit.
  [[nodiscard]] std::vector<Stall> look();

 private:
  const watch::Board& board_;
  watch::LongWaits waits_;
};

}  // namespace lockstep::replicas
