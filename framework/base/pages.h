#pragma once

#include <cstddef>
#include <memory>

namespace lockstep {

inline constexpr std::size_t kPage = 4096;

[[nodiscard]] constexpr std::size_t whole_pages(std::size_t bytes) {
  return (bytes + kPage - 1) / kPage * kPage;
}

/// Maps `bytes` of a file from `offset` on, both whole pages, for reading and writing, shared and
/// left out of core dumps; unmapped when the last pointer is gone. CommError if the system refuses.
[[nodiscard]] std::shared_ptr<std::byte> map_shared(int descriptor, std::size_t offset,
                                                    std::size_t bytes);
/// Maps `bytes` of zeros that belong to this process alone, likewise.
[[nodiscard]] std::shared_ptr<std::byte> map_private(std::size_t bytes);

}  // namespace lockstep
