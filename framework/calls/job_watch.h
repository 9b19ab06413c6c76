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
#include "framework/calls/call_table.h"
#include "framework/calls/deadlock_detector.h"
#include "framework/calls/long_waits.h"
#include "framework/calls/table_copy.h"

namespace lockstep::calls {

// These are the messages between launchers about their call tables.

/// A request to host 0 for `count` readings of all call tables.
struct ReadingsWanted {
  std::int32_t count = 0;
  LOCKSTEP_FIELDS(count)
};
/// Host 0's request for the news of a call table, for reading `number`.
struct TableLook {
  std::uint64_t number = 0;
  LOCKSTEP_FIELDS(number)
};
/// A piece of the answer to a TableLook.
struct TableWords {
  std::uint64_t number = 0;
  std::string words;
  bool is_last = false;
  LOCKSTEP_FIELDS(number, words, is_last)
};
/// Host 0's findings for a call table.
struct TableNews {
  std::vector<CallTable::Finding> findings;
  std::vector<CallTable::UnheldGroup> unheld;
  LOCKSTEP_FIELDS(findings, unheld)
};
using TableMessage = std::variant<ReadingsWanted, TableLook, TableWords, TableNews>;

/// A launcher's part in deadlock reports on calls of several hosts, while one run lasts. When a
/// wait lasts anywhere, host 0 reads the call tables of all hosts: each answers with its news. A
/// reason that two readings have shown, the second begun after the first had ended, becomes a
/// report (see DeadlockDetector). Host 0 tells all others, and workers find the report in their
/// call tables. For one thread.
class JobWatch : private NonCopyable {
 public:
  using Send = std::function<void(std::size_t host, const TableMessage& message)>;
  /// Watches on host `own`, with its `table`. Hosts run these workers of a job of `replicas`.
  JobWatch(std::size_t own, const std::vector<Range>& workers, int replicas, CallTable& table,
           Send send);

  /// Looks for waits that last. Call it often.
  void progress();
  /// Asks for readings: two find all that follows from the present state of the call tables.
  void want(int readings);
  /// Takes another host's message. Throws DataError if that host can't have sent it.
  void hear(std::size_t from, const TableMessage& message);

 private:
  using Clock = std::chrono::steady_clock;
  using Call = std::pair<std::uint64_t, std::uint64_t>;  // key and number
  struct Suspicion {
    DeadlockDetector search;
    CallTable::DeadlockReport report;
  };

  void take(std::size_t /*from*/, const ReadingsWanted& wanted) { want(wanted.count); }
  void take(std::size_t from, const TableLook& look);
  void take(std::size_t from, const TableWords& words);
  void take(std::size_t from, const TableNews& news);
  void tell(std::size_t host, const TableNews& news) {
    host == own_ ? take(own_, news) : send_(host, news);
  }

  void begin_reading();
  void end_reading();
  [[nodiscard]] std::vector<std::pair<std::size_t, SlotView>> waits() const;
  std::map<Call, CallTable::DeadlockReport> confirm();
  void suspect(std::map<Call, CallTable::DeadlockReport> told);
  void tell_absentees();
  void tell_unheld();

  std::size_t own_;
  CallTable& table_;
  Send send_;
  LongWaits waits_;
  std::uint64_t readings_wanted_ = 0;  // by workers
  TableCopy copy_;  // host 0: of all tables; others: of what they have sent, to send only changes

  // Host 0 alone uses these:
  std::set<std::size_t> awaited_;            // hosts that have not answered in this reading
  std::map<std::size_t, std::string> come_;  // by host: half an answer is not read
  std::uint64_t number_ = 0;                 // this reading's
  Clock::time_point begun_{};
  int wanted_ = 0;  // readings still to come
  std::deque<Suspicion> suspicions_;
  std::map<Call, Clock::time_point> since_;  // when a reading first showed a wait in the call
  std::map<CallTable::UnheldGroup, std::uint64_t> unheld_;  // in the last reading, with their keys
};

}  // namespace lockstep::calls
