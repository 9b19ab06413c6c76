#pragma once

#include <bit>
#include <cstdint>

namespace lockstep::reduce {

/// A node of the canonical order: a range of replicas. Every reduction adds in this order. It is
/// the binary tree over replica index that splits N replicas at the largest power of two below N.
/// Three is (0+1)+2, five ((0+1)+(2+3))+4, six ((0+1)+(2+3))+(4+5).
struct Subtree {
  std::int64_t first;
  std::int64_t count;

  /// Return the two parts of a node of at least two replicas.
  [[nodiscard]] Subtree left() const {
    return {first,
            static_cast<std::int64_t>(std::bit_floor(static_cast<std::uint64_t>(count - 1)))};
  }
  [[nodiscard]] Subtree right() const { return {first + left().count, count - left().count}; }

  // The rest is for complete subtrees, whose count is a power of two.

  [[nodiscard]] bool is_left() const { return first % (2 * count) == 0; }
  /// Returns the other half of parent(), if parent() is complete.
  [[nodiscard]] Subtree sibling() const {
    return {is_left() ? first + count : first - count, count};
  }
  [[nodiscard]] Subtree parent() const { return {is_left() ? first : first - count, 2 * count}; }

  bool operator==(const Subtree&) const = default;
};

}  // namespace lockstep::reduce
