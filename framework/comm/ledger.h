#pragma once

#include <atomic>
#include <cstdint>

namespace lockstep {

/// What one replica has put on the wire, payload only. Any thread may read it while a collective
/// counts.
struct Ledger {
  std::atomic<std::uint64_t> bytes_sent{0};
  /// Times a replica sent to all its peers and waited for all of theirs.
  std::atomic<std::uint64_t> rounds{0};
};

}  // namespace lockstep
