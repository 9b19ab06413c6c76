#pragma once

#include <cstddef>
#include <span>
#include <stdexcept>
#include <string>
#include <vector>

namespace lockstep::testing {

using Words = std::vector<float>;

inline std::span<const std::byte> bytes(const Words& words) {
  return std::as_bytes(std::span(words));
}
inline std::span<std::byte> bytes(Words& words) {
  return std::as_writable_bytes(std::span(words));
}

/// Replicas throw what is wrong: Catch2's own checks are for one thread.
inline void expect(bool holds, const std::string& message) {
  if (!holds) throw std::runtime_error(message);
}

}  // namespace lockstep::testing
