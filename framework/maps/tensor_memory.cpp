#include "framework/maps/tensor_memory.h"

#include <atomic>
#include <cstddef>
#include <cstring>
#include <mutex>
#include <unordered_map>
#include <utility>

#include <c10/core/Allocator.h>
#include <c10/core/CPUAllocator.h>

#include "framework/base/memory.h"
#include "framework/base/mutex.h"
#include "framework/base/text.h"
#include "framework/collectives/kept_blocks.h"

namespace lockstep::maps {

// The numbers of a scope, atomic since any thread may free a counted tensor.
struct TensorMemory::Count {
  explicit Count(std::int64_t bytes) : most(bytes) {}

  const std::int64_t most;
  std::atomic<std::int64_t> now = 0;
  std::atomic<std::int64_t> peak = 0;
};

namespace {

thread_local std::shared_ptr<TensorMemory::Count> current_count;

// The sizes of tensors that get kept blocks. If kept, a gradient of 300 MiB would count twice.
constexpr std::size_t kSmallestBlock = std::size_t{128} << 10;
constexpr std::size_t kLargestBlock = std::size_t{32} << 20;

// The counted tensors by address, and the allocator that the rest comes from.
struct Table {
  struct Entry {
    c10::DataPtr memory;
    std::int64_t bytes = 0;
    std::shared_ptr<TensorMemory::Count> count;
  };
  Mutex mutex;
  std::unordered_map<void*, Entry> entries LOCKSTEP_GUARDED_BY(mutex);
  c10::Allocator* before = nullptr;
  bool keeps_blocks = false;
};

Table& table() {
  static Table* const one = new Table;  // it lives as long as any tensor may
  return *one;
}

void free_memory(void* address) {
  Table::Entry entry;
  {
    const MutexLock lock(table().mutex);
    const auto found = table().entries.find(address);
    if (found != table().entries.end()) {
      entry = std::move(found->second);
      table().entries.erase(found);
    }
  }
  if (entry.count) {
    entry.count->now -= entry.bytes;
  } else if (!collectives::free_block(address)) {
    table().before->raw_deallocate(address);
  }
}

// An allocator that counts. LibTorch's profiler counts as well, but complains of earlier memory.
class CountingAllocator final : public c10::Allocator {
 public:
  // LibTorch's version decides which of the two is virtual.
  c10::DataPtr allocate(std::size_t bytes) const { return counted(bytes); }
  c10::DataPtr allocate(std::size_t bytes) { return counted(bytes); }
  c10::DeleterFnPtr raw_deleter() const override { return free_memory; }
  // This function is virtual in newer versions.
  void copy_data(void* to, const void* from, std::size_t bytes) const {
    std::memcpy(to, from, bytes);
  }

 private:
  static c10::DataPtr counted(std::size_t bytes) {
    const bool counts = current_count && bytes > 0;
    const auto size = static_cast<std::int64_t>(bytes);
    if (counts) {
      require(size <= current_count->most - current_count->now, "tensors take more than ",
              text_of_bytes(current_count->most));
    }
    const bool keeps = table().keeps_blocks && bytes >= kSmallestBlock && bytes <= kLargestBlock;
    c10::DataPtr memory = keeps ? collectives::kept_block(bytes) : table().before->allocate(bytes);
    if (!counts) return memory;
    void* const address = memory.get();
    const std::int64_t now = current_count->now += size;
    if (now > current_count->peak) current_count->peak = now;
    const MutexLock lock(table().mutex);
    table().entries[address] = {std::move(memory), size, current_count};
    return {address, address, free_memory, c10::Device(c10::DeviceType::CPU)};
  }
};

}  // namespace

void TensorMemory::prepare() {
  static std::once_flag once;
  std::call_once(once, [] {
    keep_freed_memory();
    table().before = c10::GetCPUAllocator();
    const bool is_default = table().before == c10::GetDefaultCPUAllocator();
    table().keeps_blocks = is_default && !has_own_malloc_settings();
    c10::SetCPUAllocator(new CountingAllocator, /*priority=*/255);
  });
}

void TensorMemory::release() {
  collectives::give_back_blocks();
  release_freed_memory();
}

TensorMemory::TensorMemory(std::int64_t most)
    : count_(std::make_shared<Count>(most)), current_(current_count, count_) {
  prepare();
}

std::int64_t TensorMemory::peak() const noexcept {
  return count_->peak;
}

}  // namespace lockstep::maps
