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

/// Whether they have the same bits.
[[nodiscard]] bool same(std::span<const std::byte> a, std::span<const std::byte> b);
[[nodiscard]] bool same(std::span<const float> a, std::span<const float> b);

/// What replica `rank` contributes: values whose sum depends on the order of adding.
[[nodiscard]] Words values_of(int rank, std::size_t count, std::size_t salt = 0);
/// The sum of what `ranks` contribute, as one replica computes it.
[[nodiscard]] Words sum_of(const std::vector<int>& ranks, std::size_t count, std::size_t salt = 0);
/// 0 to `replicas` - 1.
[[nodiscard]] std::vector<int> everyone(int replicas);
[[nodiscard]] Words slice(const Words& words, std::size_t start, std::size_t count);

/// Replicas throw what is wrong: Catch2's own checks are for one thread.
inline void expect(bool holds, const std::string& message) {
  if (!holds) throw std::runtime_error(message);
}
/// That `call` throws an E whose message has this part.
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
