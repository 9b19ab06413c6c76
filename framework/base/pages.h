#pragma once

#include <cstddef>
#include <memory>

#include "framework/base/range.h"

namespace lockstep {

inline constexpr std::size_t kPage = 4096;

[[nodiscard]] constexpr std::size_t whole_pages(std::size_t bytes) {
  return round_up(bytes, kPage);
}

/// Maps `bytes` of a file from `offset` on (both whole pages) for reading and writing, shared and
/// left out of core dumps. The last pointer unmaps them. Throws CommError if the system refuses.
[[nodiscard]] std::shared_ptr<std::byte> map_shared(int descriptor, std::size_t offset,
                                                    std::size_t bytes);
/// The same for `bytes` of zeros that belong to this process alone.
[[nodiscard]] std::shared_ptr<std::byte> map_private(std::size_t bytes);

}  // namespace lockstep
