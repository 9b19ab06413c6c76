#pragma once

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <shared_mutex>
#include <span>
#include <vector>

#include "framework/base/word.h"
#include "framework/comm/symmetric_buffer.h"

namespace lockstep {

/// Extents: parts of a host's shared memory that replicas allocate and map at run time. They lie at
/// the end of its file. An extent is known by its offset, which is never used twice. Its memory
/// returns to the system when all have let it go. Any thread.
class SharedExtents : public std::enable_shared_from_this<SharedExtents> {
 public:
  /// Addresses for extents in the file, not memory.
  static constexpr std::size_t kBytes = std::size_t{1} << 50;

  /// A mapping of an extent.
  class Extent {
   public:
    /// Use allocate() and attach().
    Extent(std::shared_ptr<SharedExtents> owner, std::size_t offset, std::size_t bytes);
    ~Extent();
    Extent(const Extent&) = delete;
    Extent& operator=(const Extent&) = delete;

    [[nodiscard]] std::size_t offset() const noexcept { return offset_; }
    /// Zeros at first. Begins with a page.
    [[nodiscard]] std::span<std::byte> data() const noexcept;
    /// Takes memory for a part of data(), so that it is there when it is used. CommError if the
    /// system has none.
    void reserve(std::span<const std::byte> part) const;

   private:
    struct Head;
    [[nodiscard]] Head& head() const noexcept;

    std::shared_ptr<SharedExtents> owner_;
    std::size_t offset_;
    std::size_t bytes_;  // of data()
    std::shared_ptr<std::byte> mapping_;
  };

  /// The extents in the kBytes of a file that begin at `start`, a page's; all zeros at first.
  SharedExtents(int descriptor, std::size_t start);
  ~SharedExtents();
  SharedExtents(const SharedExtents&) = delete;
  SharedExtents& operator=(const SharedExtents&) = delete;

  /// Of the file.
  [[nodiscard]] int descriptor() const noexcept { return descriptor_; }

  /// A new extent of `bytes`. CommError if the host has less memory than that.
  [[nodiscard]] std::shared_ptr<Extent> allocate(std::size_t bytes);
  /// The one at `offset`, which somebody holds: the same object for all of this process.
  [[nodiscard]] std::shared_ptr<Extent> attach(std::size_t offset, std::size_t bytes);

  /// Where a buffer is: the offset of its extent, and where in the extent's data().
  [[nodiscard]] SharedPlace find(std::span<const std::byte> buffer) const;
  /// The data of an extent that this process holds.
  [[nodiscard]] std::byte* data_of(std::uint64_t extent) const;

 private:
  struct Known {
    const Extent* extent;
    std::weak_ptr<Extent> held;
  };
  void forget(const Extent& extent) noexcept;

  std::size_t start_;
  std::shared_ptr<Word> used_;         // all processes': bytes behind the first page ever allocated
  int descriptor_;                     // an own one
  std::atomic<std::size_t> count_{0};  // of known_
  mutable std::shared_mutex mutex_;    // guards what follows
  std::vector<Known> known_;           // those of this process
};

}  // namespace lockstep
