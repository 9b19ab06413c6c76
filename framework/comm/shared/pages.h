#pragma once

#include <cstddef>
#include <span>

namespace lockstep {

inline constexpr std::size_t kPage = 4096;

[[nodiscard]] constexpr std::size_t whole_pages(std::size_t bytes) {
  return (bytes + kPage - 1) / kPage * kPage;
}

/// Maps `bytes` of a file from `offset` on, both whole pages, for reading and writing, shared and
/// left out of core dumps. CommError if the system refuses.
[[nodiscard]] std::span<std::byte> map_shared(int descriptor, std::size_t offset,
                                              std::size_t bytes);

}  // namespace lockstep
