#pragma once

#include <chrono>
#include <cstdint>
#include <map>
#include <string>
#include <utility>
#include <vector>

#include "framework/base/range.h"
#include "framework/base/record.h"
#include "framework/base/waited.h"
#include "framework/watch/board.h"
#include "framework/watch/recorder.h"

namespace lockstep::watch {

/// A call in which replicas have waited for long.
struct Stall {
  std::uint64_t key = 0;     ///< of the call's group
  std::uint64_t number = 0;  ///< of the call on that group
  int times = 0;             ///< how often it was found, from 1
  std::string text{};  ///< "stalled for 60 s: replica 0 waits in psum …: replica 2 has not …"

  LOCKSTEP_FIELDS(key, number, times, text)
  bool operator==(const Stall&) const = default;
};

/// Looks on a board for members of a host's workers that wait for long. Pauses of the looking
/// process do not count. For one thread.
class LongWaits {
 public:
  /// Of a wait look() tells when it has lasted for `first` (zero: never), again when that has
  /// doubled, and so on, but at the latest `most` after the time before.
  LongWaits(const Board& board, const Range& workers, std::chrono::milliseconds first,
            std::chrono::milliseconds most = std::chrono::hours(24 * 365))
      : board_(board), workers_(workers), first_(first), most_(most) {}

  struct Found {
    Board::Wait wait;
    Waited::Clock::duration lasts{};
    int times = 0;  ///< how often look() has told of it
  };
  /// Call it often, compared with `first`.
  [[nodiscard]] std::vector<Found> look();
  /// The same by calls, each of which counts once for all its members; with what replicas of this
  /// host do instead.
  [[nodiscard]] std::vector<Stall> stalls(const Recorder& recorder);

 private:
  using Clock = Waited::Clock;
  struct Known {
    std::uint64_t version;
    Waited waited;
    Clock::duration next;
    int times = 0;
  };

  const Board& board_;
  Range workers_;
  std::chrono::milliseconds first_;
  std::chrono::milliseconds most_;
  Clock::time_point next_{};
  std::map<std::pair<int, std::uint32_t>, Known> waits_;  // by worker and seat
};

}  // namespace lockstep::watch
