#pragma once

#include <cstddef>
#include <memory>
#include <vector>

#include "framework/base/bytes.h"
#include "framework/base/non_copyable.h"

namespace lockstep::comm {

/// Memory for one verb. Pieces of up to kKept bytes are kept for the next verb: fresh pages cost
/// more than the copies into them.
class Scratch {
 public:
  /// A verb's use of a Scratch: its end takes back all memory that take() gave.
  class Use : private NonCopyable {
   public:
    explicit Use(Scratch& scratch) : scratch_(scratch) {}
    ~Use() { scratch_.clear(); }

   private:
    Scratch& scratch_;
  };

  /// More than the default size of a bucket of gradients.
  static constexpr std::size_t kKept = std::size_t{32} << 20;

  /// Returns `bytes` of memory, which is not zeroed, for use while the Use lives.
  [[nodiscard]] Bytes take(std::size_t bytes) {
    if (used_ == blocks_.size()) blocks_.emplace_back();
    Block& block = blocks_[used_++];
    if (bytes > block.size) {
      block.memory = std::make_unique_for_overwrite<std::byte[]>(bytes);
      block.size = bytes;
    }
    return {block.memory.get(), bytes};
  }

 private:
  struct Block {
    std::unique_ptr<std::byte[]> memory;
    std::size_t size = 0;
  };

  void clear() noexcept {
    for (Block& block : blocks_) {
      if (block.size > kKept) block = {};
    }
    used_ = 0;
  }

  std::vector<Block> blocks_;
  std::size_t used_ = 0;
};

}  // namespace lockstep::comm
