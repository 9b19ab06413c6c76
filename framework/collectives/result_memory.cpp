#include "framework/collectives/result_memory.h"

#include <algorithm>
#include <cstddef>
#include <list>
#include <memory>
#include <mutex>
#include <new>
#include <utility>

#include <ATen/ops/empty.h>
#include <c10/core/Allocator.h>
#include <c10/core/CPUAllocator.h>
#include <c10/core/Storage.h>
#include <c10/util/accumulate.h>

namespace lockstep {
namespace {

// Below this the C library keeps what is freed by itself.
constexpr std::size_t kLarge = std::size_t{4} << 20;
constexpr std::size_t kMostKept = std::size_t{512} << 20;  // bytes, of a process
constexpr std::align_val_t kAlignment{64};

struct Free {
  void operator()(void* data) const { ::operator delete(data, kAlignment); }
};
struct Block {
  std::unique_ptr<void, Free> data;
  std::size_t bytes;
};

// Blocks that nobody uses, the one that was freed last first.
class Kept {
 public:
  // One of at least `bytes` and not much more, if there is such a one.
  std::unique_ptr<Block> take(std::size_t bytes) {
    const std::lock_guard lock(mutex_);
    const auto fits = std::find_if(blocks_.begin(), blocks_.end(), [&](const auto& block) {
      return block->bytes >= bytes && block->bytes - bytes <= bytes / 8;
    });
    if (fits == blocks_.end()) return nullptr;
    auto block = std::move(*fits);
    blocks_.erase(fits);
    bytes_ -= block->bytes;
    return block;
  }

  void give(std::unique_ptr<Block> block) {
    std::list<std::unique_ptr<Block>> too_many;  // freed without the lock
    const std::lock_guard lock(mutex_);
    bytes_ += block->bytes;
    blocks_.push_front(std::move(block));
    while (bytes_ > kMostKept) {
      bytes_ -= blocks_.back()->bytes;
      too_many.splice(too_many.end(), blocks_, std::prev(blocks_.end()));
    }
  }

 private:
  std::mutex mutex_;
  std::list<std::unique_ptr<Block>> blocks_;
  std::size_t bytes_ = 0;
};

// Never destroyed: tensors may outlive every static object.
Kept& kept() {
  static auto* const blocks = new Kept;
  return *blocks;
}

void give_back(void* block) {
  kept().give(std::unique_ptr<Block>(static_cast<Block*>(block)));
}

}  // namespace

at::Tensor result_memory(at::IntArrayRef sizes, const at::TensorOptions& options) {
  const std::size_t bytes =
      static_cast<std::size_t>(c10::multiply_integers(sizes)) * options.dtype().itemsize();
  if (bytes < kLarge) return at::empty(sizes, options);
  auto block = kept().take(bytes);
  if (!block) block.reset(new Block{{::operator new(bytes, kAlignment), {}}, bytes});
  void* const data = block->data.get();
  c10::Storage storage(c10::Storage::use_byte_size_t{}, bytes,
                       c10::DataPtr(data, block.release(), give_back, at::kCPU),
                       c10::GetCPUAllocator(), /*resizable=*/true);
  return at::empty({0}, options).set_(storage, 0, sizes);
}

at::Tensor result_memory_like(const at::Tensor& tensor) {
  return result_memory(tensor.sizes(), tensor.options());
}

}  // namespace lockstep
