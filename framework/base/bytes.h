#pragma once

#include <cstddef>
#include <cstring>
#include <span>

namespace lockstep {

using Bytes = std::span<std::byte>;
using ConstBytes = std::span<const std::byte>;

/// Copies `from` to the start of `to`, which is at least as long. Does nothing if they start at the
/// same address.
inline void copy_bytes(ConstBytes from, Bytes to) {
  if (!from.empty() && from.data() != to.data()) std::memmove(to.data(), from.data(), from.size());
}

}  // namespace lockstep
