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
#include "framework/calls/call_table.h"
#include "framework/timeline/recorder.h"

namespace lockstep::calls {

/// A call in which replicas have waited for long.
struct Stall {
  std::uint64_t key = 0;     ///< the key of the call's group
  std::uint64_t number = 0;  ///< the call's number on that group
  int times = 0;             ///< how often the wait was found, from 1
  std::string text{};  ///< "stalled for 60 s: replica 0 waits in psum …: replica 2 has not …"

  LOCKSTEP_FIELDS(key, number, times, text)
  bool operator==(const Stall&) const = default;
};

/// A search of a call table for long waits of members of a host's workers. Pauses of the searching
/// process do not count. For one thread.
class LongWaits {
 public:
  /// look() returns a wait when it has lasted for `first` (zero: never), again when that time has
  /// doubled, and so on, but at the latest `most` after the last time.
  LongWaits(const CallTable& table, const Range& workers, std::chrono::milliseconds first,
            std::chrono::milliseconds most = std::chrono::hours(24 * 365))
      : table_(table), workers_(workers), first_(first), most_(most) {}

  struct Found {
    CallTable::Wait wait;
    Waited::Clock::duration lasts{};
    int times = 0;  ///< how often look() has returned the wait
  };
  /// Returns the waits that are due. Call it often, compared with `first`.
  [[nodiscard]] std::vector<Found> look();
  /// Returns the due waits by calls, each once for all its members, with what replicas of this host
  /// do instead.
  [[nodiscard]] std::vector<Stall> stalls(const timeline::Recorder& recorder);

 private:
  using Clock = Waited::Clock;
  struct Known {
    std::uint64_t version;
    Waited waited;
    Clock::duration next;
    int times = 0;
  };

  const CallTable& table_;
  Range workers_;
  std::chrono::milliseconds first_;
  std::chrono::milliseconds most_;
  Clock::time_point next_{};
  std::map<std::pair<int, std::uint32_t>, Known> waits_;  // by worker and slot
};

}  // namespace lockstep::calls
