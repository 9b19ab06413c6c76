#pragma once

#include <cstddef>
#include <string>
#include <string_view>
#include <vector>

#include "framework/base/range.h"
#include "framework/calls/call_table.h"
#include "framework/calls/table_memory.h"

namespace lockstep::calls {

/// Returns a text for the layout of a call table's words. Hosts that send each other copies must
/// have the same one and count the same workers: launchers compare both when they meet.
[[nodiscard]] std::string table_layout();

/// Copies of the call tables of a job's hosts, word for word. For one thread.
class TableCopy {
 public:
  /// `workers` has the workers that each host runs: they are numbered host by host.
  explicit TableCopy(const std::vector<Range>& workers);
  [[nodiscard]] const TableMemory& memory() const noexcept { return memory_; }
  /// Returns the workers of each host.
  [[nodiscard]] const std::vector<std::vector<int>>& workers() const noexcept { return workers_; }

  /// Copies the present state of the workers of `host` from its call table. Returns the words that
  /// have changed since the last time, in pieces of at most kPiece bytes for write().
  std::vector<std::string> read(const CallTable& table, std::size_t host);
  /// Writes the result of read() for `host`. Throws DataError if it is damaged or another host's.
  void write(std::string_view changes, std::size_t host);
  static constexpr std::size_t kPiece = std::size_t{512} << 10;

 private:
  void copy(const Word* from, Word* to, std::size_t count = 1);
  void copy_worker(const WorkerWords& from, WorkerWords& to);
  bool mark(const Word& from, Word& to);
  bool mark_changed(const WorkerWords& from, WorkerWords& to);

  std::vector<std::vector<int>> workers_;
  TableMemory memory_;
  std::vector<std::string> changes_;
};

}  // namespace lockstep::calls
