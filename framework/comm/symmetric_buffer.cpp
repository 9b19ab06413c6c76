#include "framework/comm/symmetric_buffer.h"

#include <cstring>
#include <new>

#include "framework/comm/shared_pages.h"

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

std::shared_ptr<SymmetricBuffer> private_buffer(std::size_t bytes, bool is_common) {
  return std::make_shared<PrivateBuffer>(bytes, is_common);
}

}  // namespace lockstep
