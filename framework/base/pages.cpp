#include "framework/base/pages.h"

#include <cerrno>

#include <sys/mman.h>

#include "framework/base/errors.h"
#include "framework/base/limits.h"
#include "framework/base/text.h"

namespace lockstep {
namespace {

std::shared_ptr<std::byte> map_memory(std::size_t bytes, int flags, int descriptor,
                                      std::size_t offset) {
  void* const data = ::mmap(nullptr, bytes, PROT_READ | PROT_WRITE, flags | MAP_NORESERVE,
                            descriptor, static_cast<off_t>(offset));
  if (data == MAP_FAILED) {
    const std::string reason = text_of_errno(errno);
    throw CommError(str("the memory that replicas of a host share: descriptor ", descriptor,
                        " can't be used for ", bytes, " bytes: ", reason, memory_limit_text()));
  }
  static_cast<void>(::madvise(data, bytes, MADV_DONTDUMP));
  return {static_cast<std::byte*>(data), [=](std::byte* begin) { ::munmap(begin, bytes); }};
}

}  // namespace

std::shared_ptr<std::byte> map_shared(int descriptor, std::size_t offset, std::size_t bytes) {
  return map_memory(bytes, MAP_SHARED, descriptor, offset);
}

std::shared_ptr<std::byte> map_private(std::size_t bytes) {
  return map_memory(bytes, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
}

}  // namespace lockstep
