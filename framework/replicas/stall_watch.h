#pragma once

#include <cstdint>
#include <string>
#include <vector>

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

/// The calls whose `waits` on the board have now lasted for long. A call counts once for all its
/// members. Look often, compared with what is long.
[[nodiscard]] std::vector<Stall> find_stalls(const watch::Board& board, watch::LongWaits& waits);

}  // namespace lockstep::replicas
