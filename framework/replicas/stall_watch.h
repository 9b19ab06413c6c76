#pragma once

#include <chrono>
#include <cstdint>
#include <map>
#include <string>
#include <utility>
#include <vector>

#include "framework/base/range.h"
#include "framework/base/record.h"
#include "framework/watch/board.h"

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

/// Looks on a board for members of a host's workers that wait longer than a limit. For one thread.
class StallWatch {
 public:
  /// A limit of zero: never.
  StallWatch(const watch::Board& board, const Range& workers, std::chrono::milliseconds limit)
      : board_(board), workers_(workers), limit_(limit) {}

  /// The calls in which members have waited for the limit, and again for twice, four times … the
  /// limit. A call counts once for all its members. Look often, compared with the limit.
  [[nodiscard]] std::vector<Stall> look();

 private:
  using Clock = std::chrono::steady_clock;
  struct Known {
    std::uint64_t version;
    Clock::time_point since;
    int times = 0;
  };

  const watch::Board& board_;
  Range workers_;
  std::chrono::milliseconds limit_;
  Clock::time_point next_{};
  std::map<std::pair<std::int64_t, std::uint32_t>, Known> waits_;  // by worker and seat
};

}  // namespace lockstep::replicas
