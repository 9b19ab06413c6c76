#include "framework/collectives/kept_blocks.h"

#include <algorithm>
#include <vector>

#include <c10/core/CPUAllocator.h>

#include "framework/base/mutex.h"

namespace lockstep::collectives {
namespace {

struct Block {
  void* address;
  std::size_t bytes;
  bool is_used;
};

struct Blocks {
  Mutex mutex;
  std::vector<Block> list LOCKSTEP_GUARDED_BY(mutex);
  std::size_t kept LOCKSTEP_GUARDED_BY(mutex) = 0;  // bytes that nobody uses
  std::size_t used LOCKSTEP_GUARDED_BY(mutex) = 0;
  std::size_t most LOCKSTEP_GUARDED_BY(mutex) = 0;  // used at a time

  void give_back() LOCKSTEP_REQUIRES(mutex) {
    std::erase_if(list, [](const Block& block) {
      if (!block.is_used) c10::GetDefaultCPUAllocator()->raw_deallocate(block.address);
      return !block.is_used;
    });
    kept = 0;
  }
};

// Never destroyed: tensors may outlive every static object.
Blocks& blocks() {
  static auto* const one = new Blocks;
  return *one;
}

}  // namespace

c10::DataPtr kept_block(std::size_t bytes) {
  Blocks& its = blocks();
  const MutexLock lock(its.mutex);
  Block* best = nullptr;
  for (Block& block : its.list) {
    const bool fits = block.bytes >= bytes && block.bytes - bytes <= bytes / 8;
    if (!block.is_used && fits && (!best || block.bytes < best->bytes)) best = &block;
  }
  if (!best) {
    if (its.kept > its.most) its.give_back();
    its.list.reserve(its.list.size() + 1);
    void* const made = c10::GetDefaultCPUAllocator()->raw_allocate(bytes);
    best = &its.list.emplace_back(Block{made, bytes, false});
    its.kept += bytes;
  }
  best->is_used = true;
  its.kept -= best->bytes;
  its.used += best->bytes;
  its.most = std::max(its.most, its.used);
  return {best->address, best->address, [](void* freed) { (void)free_block(freed); },
          c10::Device(c10::DeviceType::CPU)};
}

bool free_block(void* address) noexcept {
  Blocks& its = blocks();
  const MutexLock lock(its.mutex);
  const auto block = std::ranges::find(its.list, address, &Block::address);
  if (block == its.list.end()) return false;
  block->is_used = false;
  its.kept += block->bytes;
  its.used -= block->bytes;
  return true;
}

void give_back_blocks() {
  Blocks& its = blocks();
  const MutexLock lock(its.mutex);
  its.most = its.used;
  its.give_back();
}

}  // namespace lockstep::collectives
