#pragma once

#include <cstdint>
#include <string_view>
#include <vector>

#include "framework/watch/board_memory.h"

namespace lockstep::watch {

struct ShownSeat {
  std::uint32_t index = 0;
  /// It was written all the time: nothing but the index is known.
  bool is_unread = false;
  SeatView view;
  std::string_view name;
  std::string_view now;
  std::string_view last;
};

struct ShownGroup {
  std::uint64_t key = 0;
  /// An index of Snapshot::groups.
  std::size_t members = 0;
  bool held = false;
  /// How often each member of this worker has arrived, in the order of places.
  std::vector<std::uint64_t> arrived;
};

struct ShownWorker {
  int worker = 0;
  bool left_out = false;
  bool stopped = false;
  std::vector<ShownSeat> seats;  ///< by index
  std::vector<ShownGroup> groups;
};

/// A snapshot of workers of another host, read and checked. Texts lie in its bytes.
struct Snapshot {
  std::uint64_t serial = 0;
  std::vector<PublishedVerdict> verdicts;
  std::vector<std::vector<GroupMember>> groups;
  std::vector<ShownWorker> workers;
};

/// Throws DataError unless `bytes` are a snapshot of a board of `workers` workers.
[[nodiscard]] Snapshot read_snapshot(std::string_view bytes, int workers);

}  // namespace lockstep::watch
