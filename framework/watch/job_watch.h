#pragma once

#include <chrono>
#include <cstddef>
#include <cstdint>
#include <deque>
#include <functional>
#include <map>
#include <set>
#include <string>
#include <utility>
#include <variant>
#include <vector>

#include "framework/base/non_copyable.h"
#include "framework/base/range.h"
#include "framework/base/record.h"
#include "framework/watch/board.h"
#include "framework/watch/board_copy.h"
#include "framework/watch/long_waits.h"
#include "framework/watch/verdict_search.h"

namespace lockstep::watch {

// What launchers tell each other of their boards.

/// To host 0: so many readings of all boards are wanted.
struct ReadingsWanted {
  std::int32_t count = 0;
  LOCKSTEP_FIELDS(count)
};
/// Of host 0: what is new on the board is wanted, for reading `number`; and the answer, in pieces.
struct BoardLook {
  std::uint64_t number = 0;
  LOCKSTEP_FIELDS(number)
};
struct BoardWords {
  std::uint64_t number = 0;
  std::string words;
  bool is_last = false;
  LOCKSTEP_FIELDS(number, words, is_last)
};
/// Of host 0, for the board.
struct BoardNews {
  std::vector<Board::Finding> findings;
  std::vector<Board::UnheldGroup> unheld;
  LOCKSTEP_FIELDS(findings, unheld)
};
using BoardMessage = std::variant<ReadingsWanted, BoardLook, BoardWords, BoardNews>;

/// A launcher's part in verdicts on calls that have members on several hosts, while one run lasts.
/// When a wait lasts anywhere, host 0 reads the boards of all hosts: each answers with what is new.
/// A reason for a verdict that two readings have shown, the second begun after the first had ended,
/// is a verdict (see VerdictSearch). Host 0 tells all others, and workers find it on their boards.
/// For one thread.
class JobWatch : private NonCopyable {
 public:
  using Send = std::function<void(std::size_t host, const BoardMessage& message)>;
  /// On host `own` of those that run these workers of a job of `replicas`, with the host's `board`.
  JobWatch(std::size_t own, const std::vector<Range>& workers, int replicas, Board& board,
           Send send);

  /// Looks for waits that last. Call it often.
  void progress();
  /// Asks for readings: after two, all is known that follows from what is on the boards now.
  void want(int readings);
  /// What the JobWatch of another host has sent. DataError if it can't be.
  void hear(std::size_t from, const BoardMessage& message);

 private:
  using Clock = std::chrono::steady_clock;
  using Call = std::pair<std::uint64_t, std::uint64_t>;  // key and number
  struct Suspicion {
    VerdictSearch search;
    Board::Verdict verdict;
  };

  void take(std::size_t /*from*/, const ReadingsWanted& wanted) { want(wanted.count); }
  void take(std::size_t from, const BoardLook& look);
  void take(std::size_t from, const BoardWords& words);
  void take(std::size_t from, const BoardNews& news);
  void tell(std::size_t host, const BoardNews& news) {
    host == own_ ? take(own_, news) : send_(host, news);
  }

  void begin_reading();
  void end_reading();
  [[nodiscard]] std::vector<std::pair<std::size_t, SeatView>> waits() const;
  std::map<Call, Board::Verdict> confirm();
  void suspect(std::map<Call, Board::Verdict> told);
  void tell_absentees();
  void tell_unheld();

  std::size_t own_;
  Board& board_;
  Send send_;
  LongWaits waits_;
  std::uint64_t readings_wanted_ = 0;  // by workers
  BoardCopy copy_;  // on host 0 of all boards; on another of what host 0 knows of this host's

  // Of host 0:
  std::set<std::size_t> awaited_;            // who has not answered in this reading
  std::map<std::size_t, std::string> come_;  // of an answer in pieces, by host: half a seat is none
  std::uint64_t number_ = 0;                 // of this reading
  Clock::time_point begun_{};
  int wanted_ = 0;  // more readings
  std::deque<Suspicion> suspicions_;
  std::map<Call, Clock::time_point> since_;  // when a reading has first shown a wait in it
  std::map<Board::UnheldGroup, std::uint64_t> unheld_;  // in the last reading, with their keys
};

}  // namespace lockstep::watch
