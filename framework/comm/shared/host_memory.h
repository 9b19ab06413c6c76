#pragma once

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <map>
#include <memory>
#include <span>
#include <vector>

#include "framework/base/descriptor.h"
#include "framework/base/mutex.h"
#include "framework/base/non_copyable.h"
#include "framework/base/pages.h"
#include "framework/base/word.h"
#include "framework/comm/communicator.h"
#include "framework/comm/shared/flag.h"

namespace lockstep::calls {
class CallTable;
}  // namespace lockstep::calls

namespace lockstep::timeline {
class Recorder;
}  // namespace lockstep::timeline

namespace lockstep::comm {

/// Extents: parts of a host's shared memory that replicas allocate and map at run time, at the end
/// of its file. An extent is known by its offset, which is never used twice. Its memory returns to
/// the system when all have let it go. Any thread may use this.
class SharedExtents : public std::enable_shared_from_this<SharedExtents>, private NonCopyable {
 public:
  /// The addresses for extents in the file, which are not memory.
  static constexpr std::size_t kBytes = std::size_t{1} << 50;

  /// A mapping of an extent.
  class Extent : private NonCopyable {
   public:
    /// Use allocate() and attach().
    Extent(std::shared_ptr<SharedExtents> owner, std::size_t offset, std::size_t bytes);
    ~Extent();

    [[nodiscard]] std::size_t offset() const noexcept { return offset_; }
    /// Returns the extent's bytes, which are zeros at first and begin with a page.
    [[nodiscard]] std::span<std::byte> data() const noexcept {
      return {mapping_.get() + kPage, bytes_};
    }
    /// Takes memory for `part` of data() now, not at first use. Throws CommError if there is none.
    void reserve(std::span<const std::byte> part) const;

   private:
    // Counts in the first page: how often the extent was ever mapped, and how often unmapped.
    struct Head {
      Word came;
      Word gone;
    };
    [[nodiscard]] Head& head() const noexcept { return *reinterpret_cast<Head*>(mapping_.get()); }

    std::shared_ptr<SharedExtents> owner_;
    std::size_t offset_;
    std::size_t bytes_;  // of data()
    std::shared_ptr<std::byte> mapping_;
  };

  /// Uses `bytes` of a file, kBytes at most, from `start` (a page boundary) on. The bytes must be
  /// zeros at first.
  SharedExtents(int descriptor, std::size_t start, std::size_t bytes = kBytes);

  /// Returns the file's descriptor, which this object keeps open.
  [[nodiscard]] int descriptor() const noexcept { return descriptor_.get(); }

  /// Makes an extent of `bytes`. Throws CommError if the host has less memory than that.
  [[nodiscard]] std::shared_ptr<Extent> allocate(std::size_t bytes);
  /// Returns the extent at `offset`, which somebody must hold: one object for the whole process.
  [[nodiscard]] std::shared_ptr<Extent> attach(std::size_t offset, std::size_t bytes);

  /// Returns the extent of `buffer` (its offset), and where `buffer` begins in the extent's data().
  [[nodiscard]] SharedAddress find(std::span<const std::byte> buffer) const;
  /// Returns the data of an extent that this process holds.
  [[nodiscard]] std::byte* data_of(std::uint64_t extent) const;

 private:
  struct Known {
    const Extent* extent;
    std::weak_ptr<Extent> held;
  };
  void forget(const Extent& extent) noexcept;

  std::size_t start_;
  std::size_t bytes_;
  std::shared_ptr<Word> used_;         // bytes that all processes have ever allocated
  Descriptor descriptor_;              // a duplicate of the given one
  std::atomic<std::size_t> count_{0};  // of known_
  mutable Mutex mutex_;
  std::vector<Known> known_ LOCKSTEP_GUARDED_BY(mutex_);  // this process' extents
};

/// Memory that the members of a job on one host share, as threads or processes: the job's call
/// table, recorder and stop signal, and a region for each group. It has no name, and only the used
/// part takes memory. Any thread may use it.
class HostMemory : public std::enable_shared_from_this<HostMemory>, private NonCopyable {
 public:
  /// Groups that may be held at once; fewer where the size of files is limited (ulimit -f).
  static constexpr int kGroups = 4096;
  /// The size of a member's buffer for a message of one round. A member has two of these: for this
  /// verb and the next.
  static constexpr std::size_t kSmallBytes = std::size_t{16} << 10;
  /// The size of a member's buffer for a part of a longer message. A member has kChunks of these.
  static constexpr std::size_t kChunkBytes = std::size_t{256} << 10;
  static constexpr int kChunks = 3;

  /// Makes memory for a job of `members` that run so many `replicas` (0: one each), and returns a
  /// descriptor that is closed on exec. Its size is sealed. Throws CommError if the system has no
  /// memory, and ValueError as bytes_for() does.
  [[nodiscard]] static int make_memory(int members, int replicas = 0);
  /// Returns the size of the memory's file. Throws ValueError with the numbers if files must be so
  /// small that the memory has no room for a few groups (ulimit -f).
  [[nodiscard]] static std::size_t bytes_for(int members, int replicas);
  /// Returns the bytes of addresses that a process takes, with a few groups and without extents.
  [[nodiscard]] static std::size_t addresses_for(int members, int replicas);
  /// Maps the memory behind a descriptor from make_memory(members). The descriptor stays the
  /// caller's and may be closed. Throws CommError if the memory is not large enough.
  HostMemory(int members, int descriptor);

  /// Returns the call table for the calls of the job's members. Member i is worker i.
  [[nodiscard]] const std::shared_ptr<calls::CallTable>& call_table() const noexcept {
    return table_;
  }

  /// Returns the recorder of what the job's replicas do.
  [[nodiscard]] const std::shared_ptr<timeline::Recorder>& recorder() const noexcept {
    return recorder_;
  }

  /// Returns the signal by which the job's replicas are asked to end; 0 for none.
  [[nodiscard]] Word& stop_signal() const noexcept;

  /// A member's message to the others about its verb.
  struct Call {
    Word mark;
    /// The place of a buffer: see SharedExtents::find.
    struct Buffer {
      Word extent;
      Word at;

      [[nodiscard]] SharedAddress load() const noexcept { return {extent.load(), at.load()}; }
      void store(const SharedAddress& place) noexcept {
        extent.store(place.extent);
        at.store(place.at);
      }
    } input, output;
  };
  struct alignas(128) Line {
    Flag round;  ///< rounds that the member has finished
    Word verbs;  ///< verbs that it has begun
    Word core;  ///< the core on which it finished the last round, from 1; 0 where that is not known
    Call calls[2];
  };

  /// The memory in which one group meets. All holders share it; in one process they use the same
  /// addresses.
  class Region : private NonCopyable {
   public:
    /// Use HostMemory::hold().
    Region(std::shared_ptr<HostMemory> memory, int slot, std::size_t members);
    ~Region() { memory_->release(slot_); }

    [[nodiscard]] Line& line(std::size_t member) const noexcept {
      return reinterpret_cast<Line*>(data_.get())[member];
    }
    [[nodiscard]] std::span<std::byte> small(std::size_t member, std::size_t which) const noexcept {
      return {smalls_ + (2 * member + which) * kSmallBytes, kSmallBytes};
    }
    [[nodiscard]] std::span<std::byte> chunk(std::size_t member, std::size_t which) const noexcept {
      return {chunks_ + (kChunks * member + which) * kChunkBytes, kChunkBytes};
    }

   private:
    std::shared_ptr<HostMemory> memory_;
    int slot_;
    std::shared_ptr<std::byte> data_;  // the lines, then smalls_ and chunks_
    std::byte* smalls_;
    std::byte* chunks_;
  };

  /// Returns the region of the group `key`, which has `members`: cleared if nobody else holds it.
  /// Throws CommError when kGroups regions are held.
  [[nodiscard]] std::shared_ptr<Region> hold(std::uint64_t key, std::size_t members);

  [[nodiscard]] const std::shared_ptr<SharedExtents>& extents() const noexcept { return extents_; }

 private:
  struct Head;
  struct Layout;
  class Lock;
  void release(int slot) noexcept;

  std::shared_ptr<Head> head_;
  std::shared_ptr<const Layout> layout_;
  std::shared_ptr<SharedExtents> extents_;
  std::shared_ptr<timeline::Recorder> recorder_;
  std::shared_ptr<calls::CallTable> table_;
  Mutex mutex_;
  std::map<std::uint64_t, std::weak_ptr<Region>> regions_ LOCKSTEP_GUARDED_BY(mutex_);  // by key
};

}  // namespace lockstep::comm
