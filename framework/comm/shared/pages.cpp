#include "framework/comm/shared/pages.h"

#include <cerrno>
#include <cstring>

#include <sys/mman.h>

#include "framework/base/errors.h"
#include "framework/base/text.h"

namespace lockstep {

std::span<std::byte> map_shared(int descriptor, std::size_t offset, std::size_t bytes) {
  void* const data = ::mmap(nullptr, bytes, PROT_READ | PROT_WRITE, MAP_SHARED, descriptor,
                            static_cast<off_t>(offset));
  if (data == MAP_FAILED) {
    throw CommError(str("the memory that replicas of a host share: no ", bytes,
                        " bytes of addresses: ", std::strerror(errno)));
  }
  static_cast<void>(::madvise(data, bytes, MADV_DONTDUMP));
  return {static_cast<std::byte*>(data), bytes};
}

}  // namespace lockstep
