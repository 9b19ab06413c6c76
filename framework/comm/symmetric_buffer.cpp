#include "framework/comm/symmetric_buffer.h"

#include <cstring>
#include <new>

#include "framework/base/errors.h"
#include "framework/base/memory.h"
#include "framework/base/text.h"
#include "framework/comm/shared/pages.h"

namespace lockstep {
namespace {

constexpr std::align_val_t kAlignment{kPage};

class PrivateBuffer final : public SymmetricBuffer {
 public:
  PrivateBuffer(std::size_t bytes, bool is_common)
      : data_(static_cast<std::byte*>(::operator new(bytes, kAlignment))),
        bytes_(bytes),
        is_common_(is_common) {
    std::memset(data_, 0, bytes);
  }
  ~PrivateBuffer() override { ::operator delete(data_, kAlignment); }

  std::span<std::byte> own() const noexcept override { return {data_, bytes_}; }
  bool is_common() const noexcept override { return is_common_; }

 private:
  std::byte* data_;
  std::size_t bytes_;
  bool is_common_;
};

}  // namespace

void check_memory_left(std::size_t bytes) {
  const std::size_t available = available_memory();
  if (bytes <= available) return;
  throw CommError(str("no symmetric buffer: it takes ", bytes, " bytes, and the host has ",
                      available,
                      " bytes of memory left. Fewer replicas a host or smaller buffers need less"));
}

std::shared_ptr<SymmetricBuffer> private_buffer(std::size_t bytes, bool is_common) {
  check_memory_left(bytes);
  return std::make_shared<PrivateBuffer>(bytes, is_common);
}

}  // namespace lockstep
