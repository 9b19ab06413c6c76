#pragma once

#include <cstdint>
#include <limits>
#include <memory>

#include "framework/base/scoped_value.h"

namespace lockstep::maps {

/// While this lives, counts the memory of the tensors that this thread makes on the CPU, a
/// backward's included. Scopes nest; the inner one counts. From prepare() or the first scope on
/// LibTorch's CPU allocator is one that counts, and otherwise does the same as the one before.
class TensorMemory {
 public:
  /// An allocation throws a ValueError if tensors would take more than `most` bytes at a time.
  explicit TensorMemory(std::int64_t most = std::numeric_limits<std::int64_t>::max());

  /// Changes LibTorch's allocator now, while no other thread allocates, and calls
  /// keep_freed_memory() (base/memory.h). From now on tensors of 128 KiB to 32 MiB are in a
  /// kept_block() (collectives/kept_blocks.h), unless the program has an allocator or malloc
  /// settings of its own.
  static void prepare();
  /// Returns all freed blocks to the system.
  static void release();

  /// Returns the most bytes in use at a time, beside those in use before. Freeing the latter does
  /// not count.
  [[nodiscard]] std::int64_t peak() const noexcept;

  struct Count;

 private:
  std::shared_ptr<Count> count_;
  ScopedValue<std::shared_ptr<Count>> current_;
};

}  // namespace lockstep::maps
