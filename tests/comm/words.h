#pragma once

#include <cstddef>
#include <span>
#include <stdexcept>
#include <string>
#include <vector>

#include "framework/base/element_type.h"

namespace lockstep::testing {

using Words = std::vector<float>;

inline constexpr auto kFloat = ElementType::float32;
inline constexpr auto kSum = ReduceOp::sum;

inline std::span<const std::byte> bytes(const Words& words) {
  return std::as_bytes(std::span(words));
}
inline std::span<std::byte> bytes(Words& words) {
  return std::as_writable_bytes(std::span(words));
}

/// True when both have the same bits.
[[nodiscard]] bool same(std::span<const std::byte> a, std::span<const std::byte> b);
[[nodiscard]] bool same(std::span<const float> a, std::span<const float> b);

/// Returns the values of replica `rank`, whose sum depends on the order of adding.
[[nodiscard]] Words values_of(int rank, std::size_t count, std::size_t salt = 0);
/// Returns the sum of the values of `ranks`, as one replica computes it.
[[nodiscard]] Words sum_of(const std::vector<int>& ranks, std::size_t count, std::size_t salt = 0);
/// Returns 0 to `replicas` - 1.
[[nodiscard]] std::vector<int> everyone(int replicas);
[[nodiscard]] Words slice(const Words& words, std::size_t start, std::size_t count);

/// Throws the message unless `holds`: Catch2's own checks are for one thread.
inline void expect(bool holds, const std::string& message) {
  if (!holds) throw std::runtime_error(message);
}
/// Expects that `call` throws an E whose message has this part.
template <typename E, typename Call>
void expect_error(const Call& call, const std::string& part) {
  try {
    call();
  } catch (const E& error) {
    return expect(std::string(error.what()).find(part) != std::string::npos, error.what());
  }
  throw std::runtime_error("no error that says '" + part + "'");
}

}  // namespace lockstep::testing
