#include "framework/comm/common_buffers.h"

#include <atomic>
#include <functional>

#include <unistd.h>

namespace lockstep {

std::uint64_t CommonBuffers::new_number() {
  static std::atomic<std::uint32_t> count{0};
  return static_cast<std::uint64_t>(::getpid()) << 32U | ++count;
}

void CommonBuffers::add(std::uint64_t number, const std::shared_ptr<SymmetricBuffer>& buffer) {
  const std::lock_guard lock(mutex_);
  std::erase_if(known_, [](const Known& known) { return known.buffer.expired(); });
  known_.push_back({number, buffer});
}

CommonBuffers::Location CommonBuffers::find(std::span<const std::byte> memory) {
  const std::lock_guard lock(mutex_);
  for (const Known& known : known_) {
    const auto buffer = known.buffer.lock();
    if (!buffer) continue;
    const auto own = buffer->own();
    const std::less_equal<> not_after;
    if (not_after(own.data(), memory.data()) &&
        not_after(memory.data() + memory.size(), own.data() + own.size())) {
      return {known.number, static_cast<std::uint64_t>(memory.data() - own.data())};
    }
  }
  return {};
}

}  // namespace lockstep
