#pragma once

#include <cstddef>
#include <cstdint>
#include <map>
#include <memory>
#include <mutex>
#include <span>

#include "framework/base/word.h"
#include "framework/comm/shared/extents.h"
#include "framework/comm/shared/flag.h"

namespace lockstep {

class Board;

/// Memory that the members of a job on one host share, threads or processes: the job's board and a
/// region for each group of them. It has no name, and only what is used of it takes memory. Any
/// thread.
class HostMemory : public std::enable_shared_from_this<HostMemory> {
 public:
  /// Groups that may be held at once.
  static constexpr int kGroups = 4096;
  /// Each member's room for a message that takes one round: two of them, for this verb and the
  /// next.
  static constexpr std::size_t kSmallBytes = std::size_t{16} << 10;
  /// Each member's room for a part of a longer one: three of them.
  static constexpr std::size_t kChunkBytes = std::size_t{256} << 10;
  static constexpr int kChunks = 3;

  /// Memory for a job of `members`: a descriptor, closed on exec, of a size that is sealed.
  /// CommError if the system has none.
  [[nodiscard]] static int make_memory(int members);
  /// The memory behind a descriptor, which make_memory(members) made; it stays the caller's and may
  /// be closed. CommError if it is not large enough.
  HostMemory(int members, int descriptor);
  HostMemory(const HostMemory&) = delete;
  HostMemory& operator=(const HostMemory&) = delete;

  /// Where the job's members publish their calls; member i is worker i.
  [[nodiscard]] const std::shared_ptr<Board>& board() const noexcept { return board_; }

  /// What a member tells the others of its verb.
  struct Call {
    Word mark;
    /// Where its buffers are: see SharedExtents::find.
    struct Buffer {
      Word extent;
      Word at;
    } input, output;
  };
  struct alignas(128) Line {
    Flag round;  ///< how many rounds the member has finished
    Word verbs;  ///< how many verbs it has begun
    Word core;  ///< the core on which it finished the last round, from 1; 0 where that is not known
    Call calls[2];
  };

  /// Where one group meets. The same memory for all who hold it, and the same addresses for those
  /// of one process.
  class Region {
   public:
    /// Use HostMemory::hold().
    Region(std::shared_ptr<HostMemory> memory, int slot, std::size_t members);
    ~Region();
    Region(const Region&) = delete;
    Region& operator=(const Region&) = delete;

    [[nodiscard]] Line& line(std::size_t member) const noexcept;
    [[nodiscard]] std::span<std::byte> small(std::size_t member, std::size_t which) const noexcept;
    [[nodiscard]] std::span<std::byte> chunk(std::size_t member, std::size_t which) const noexcept;

   private:
    std::shared_ptr<HostMemory> memory_;
    int slot_;
    std::size_t members_;
    std::shared_ptr<std::byte> data_;
  };

  /// The region of the group called `key`, which has `members`; cleared when nobody else holds it.
  /// CommError when kGroups are held.
  [[nodiscard]] std::shared_ptr<Region> hold(std::uint64_t key, std::size_t members);

  [[nodiscard]] const std::shared_ptr<SharedExtents>& extents() const noexcept { return extents_; }

 private:
  struct Head;
  struct Layout;
  class Lock;
  void release(int slot) noexcept;

  int members_;
  std::shared_ptr<SharedExtents> extents_;
  std::shared_ptr<Head> head_;
  std::shared_ptr<Board> board_;
  std::mutex mutex_;                                        // guards what follows
  std::map<std::uint64_t, std::weak_ptr<Region>> regions_;  // by key
};

}  // namespace lockstep
