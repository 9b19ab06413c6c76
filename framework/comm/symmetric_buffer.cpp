#include "framework/comm/symmetric_buffer.h"

#include <cstring>
#include <new>

#include "framework/base/errors.h"
#include "framework/base/memory.h"
#include "framework/base/pages.h"
#include "framework/base/text.h"

namespace lockstep {
void check_memory_left(std::size_t bytes) {
  const std::size_t available = available_memory();
  if (bytes <= available) return;
  throw CommError(str("no symmetric buffer: it takes ", bytes, " bytes, and the host has ",
                      available,
                      " bytes of memory left. Fewer replicas a host or smaller buffers need less"));
}

SymmetricBuffer private_buffer(std::size_t bytes, bool is_common) {
  check_memory_left(bytes);
  constexpr std::align_val_t kAlignment{kPage};
  const auto release = [=](std::byte* data) { ::operator delete(data, kAlignment); };
  const std::shared_ptr<std::byte> memory(
      static_cast<std::byte*>(::operator new(bytes, kAlignment)), release);
  std::memset(memory.get(), 0, bytes);
  return {.own = {memory.get(), bytes}, .is_common = is_common, .memory = memory};
}

}  // namespace lockstep
