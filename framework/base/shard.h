#pragma once

#include <algorithm>
#include <cstdint>

namespace lockstep {

/// A contiguous part of the numbers 0 to count - 1.
struct Shard {
  std::int64_t offset;
  std::int64_t size;
};

/// Part `index` of `count` items cut into `parts` contiguous parts in order. Sizes differ by at
/// most one, the larger ones first; with fewer items than parts the last ones are empty. Requires
/// count >= 0, parts >= 1 and 0 <= index < parts.
[[nodiscard]] constexpr Shard shard(std::int64_t count, std::int64_t parts, std::int64_t index) {
  const std::int64_t small = count / parts;
  const std::int64_t larger_ones = count % parts;
  return {index * small + std::min(index, larger_ones), small + (index < larger_ones ? 1 : 0)};
}

}  // namespace lockstep
