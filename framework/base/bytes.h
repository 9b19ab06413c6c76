#pragma once

#include <cstddef>
#include <cstring>
#include <span>

namespace lockstep {

using Bytes = std::span<std::byte>;
using ConstBytes = std::span<const std::byte>;

/// Copies to a buffer of at least that size; nothing if they are the same.
inline void copy_bytes(ConstBytes from, Bytes to) {
  if (!from.empty() && from.data() != to.data()) std::memmove(to.data(), from.data(), from.size());
}

}  // namespace lockstep
