#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <span>
#include <vector>

#include "framework/base/range.h"

namespace lockstep {

using Bytes = std::span<std::byte>;
using ConstBytes = std::span<const std::byte>;

/// Copies `from` to the start of `to`, which is at least as long. Does nothing if they start at the
/// same address.
inline void copy_bytes(ConstBytes from, Bytes to) {
  if (!from.empty() && from.data() != to.data()) std::memmove(to.data(), from.data(), from.size());
}

/// Returns part `index` of a buffer that is cut into `parts` parts of nearly equal size. Cuts are
/// at multiples of `unit` bytes.
template <typename Buffer>
[[nodiscard]] Buffer slice_of(Buffer buffer, std::size_t unit, std::size_t parts,
                              std::size_t index) {
  const Range units = shard(static_cast<std::int64_t>(ceil_div(buffer.size(), unit)),
                            static_cast<std::int64_t>(parts), static_cast<std::int64_t>(index));
  const std::size_t begin = std::min(static_cast<std::size_t>(units.offset) * unit, buffer.size());
  return buffer.subspan(
      begin, std::min(static_cast<std::size_t>(units.size) * unit, buffer.size() - begin));
}

/// Cuts a buffer into parts of these sizes, from its beginning on.
template <typename Buffer>
[[nodiscard]] std::vector<Buffer> pieces_of(Buffer buffer, std::span<const std::size_t> sizes) {
  std::vector<Buffer> parts;
  for (const std::size_t size : sizes) {
    parts.push_back(buffer.first(size));
    buffer = buffer.subspan(size);
  }
  return parts;
}

}  // namespace lockstep
