#pragma once

#include <cstddef>
#include <string>
#include <string_view>
#include <vector>

#include "framework/base/range.h"
#include "framework/watch/board.h"
#include "framework/watch/board_memory.h"

namespace lockstep::watch {

/// Says where on a board which word lies. Hosts that send each other copies must say the same, and
/// count the same workers: launchers compare both when they meet.
[[nodiscard]] std::string board_layout();

/// Copies of the boards of a job's hosts, words as they lie. For one thread.
class BoardCopy {
 public:
  /// Each host runs these of the job's workers, which are numbered host by host.
  explicit BoardCopy(const std::vector<Range>& workers);
  [[nodiscard]] const BoardMemory& memory() const noexcept { return memory_; }
  /// The workers of each host.
  [[nodiscard]] const std::vector<std::vector<int>>& workers() const noexcept { return workers_; }

  /// Copies what the workers of `host`, whose board it is, do now. Returns the words that have
  /// changed since the last time, in pieces of at most kPiece bytes for write().
  std::vector<std::string> read(const Board& board, std::size_t host);
  /// Writes what read() has returned for `host`. DataError if it is damaged or of another host.
  void write(std::string_view changes, std::size_t host);
  static constexpr std::size_t kPiece = std::size_t{512} << 10;

 private:
  void copy(const Word* from, Word* to, std::size_t count = 1);
  void copy_worker(const WorkerWords& from, WorkerWords& to);
  bool mark(const Word& from, Word& to);
  bool mark_changed(const WorkerWords& from, WorkerWords& to);

  std::vector<std::vector<int>> workers_;
  BoardMemory memory_;
  std::vector<std::string> changes_;
};

}  // namespace lockstep::watch
