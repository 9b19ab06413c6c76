#pragma once

#include <algorithm>
#include <concepts>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <iterator>
#include <limits>
#include <numeric>
#include <optional>
#include <ranges>
#include <span>
#include <type_traits>
#include <vector>

namespace lockstep {

/// `size` consecutive numbers from `offset` on.
template <std::integral Number>
struct BasicRange {
  Number offset;
  Number size;

  [[nodiscard]] constexpr Number end() const noexcept { return offset + size; }
};
using Range = BasicRange<std::int64_t>;

/// Returns the numbers that are in both, a range of size 0 if there are none.
template <std::integral Number>
[[nodiscard]] constexpr BasicRange<Number> intersection(const BasicRange<Number>& a,
                                                        const BasicRange<Number>& b) {
  const Number offset = std::max(a.offset, b.offset);
  return {offset, std::max(offset, std::min(a.end(), b.end())) - offset};
}

/// Returns `count` numbers: first, first + 1, …
template <std::integral Number>
[[nodiscard]] std::vector<Number> consecutive(Number first, std::integral auto count) {
  std::vector<Number> numbers(static_cast<std::size_t>(count));
  std::iota(numbers.begin(), numbers.end(), first);
  return numbers;
}

/// Returns the items at these places, in the places' order.
template <typename T>
[[nodiscard]] std::vector<T> items_at(const std::vector<T>& items, std::span<const int> places) {
  std::vector<T> chosen;
  for (const int place : places) chosen.push_back(items[static_cast<std::size_t>(place)]);
  return chosen;
}

/// Returns the `values` that have this property, in their order.
template <std::ranges::range Values, typename Property>
[[nodiscard]] auto filtered(const Values& values, const Property& has) {
  std::vector<std::ranges::range_value_t<Values>> found;
  std::ranges::copy_if(values, std::back_inserter(found), has);
  return found;
}

/// Returns the sum of f(value) over `values`; `f` may be a pointer to a member.
template <std::ranges::range Values, typename F>
[[nodiscard]] auto sum_of(const Values& values, const F& f) {
  std::decay_t<std::invoke_result_t<const F&, std::ranges::range_reference_t<const Values>>> sum{};
  for (const auto& value : values) sum += std::invoke(f, value);
  return sum;
}

/// Returns the product of these sizes and `factor`; nothing if it needs more than 63 bits.
template <std::ranges::range Sizes>
[[nodiscard]] std::optional<std::uint64_t> product_of(const Sizes& sizes, std::uint64_t factor) {
  constexpr std::uint64_t kMost = std::numeric_limits<std::int64_t>::max();
  if (std::ranges::find(sizes, 0) != std::ranges::end(sizes)) return 0;
  for (const std::uint64_t size : sizes) {
    if (factor > kMost / size) return std::nullopt;
    factor *= size;
  }
  return factor;
}

/// Returns the index of element number `i` of a row-major array of this shape.
[[nodiscard]] inline std::vector<std::int64_t> row_major_index(
    std::int64_t i, std::span<const std::int64_t> shape) {
  std::vector<std::int64_t> index(shape.size());
  for (std::size_t d = shape.size(); d-- > 0; i /= shape[d]) index[d] = i % shape[d];
  return index;
}

/// Returns `value` / `divisor`, rounded up, for a `value` >= 0 and a `divisor` > 0.
template <std::integral Number>
[[nodiscard]] constexpr Number ceil_div(Number value, Number divisor) {
  return value / divisor + (value % divisor == 0 ? 0 : 1);
}

/// Returns the least multiple of `multiple` that is at least `value`, under the same conditions.
template <std::integral Number>
[[nodiscard]] constexpr Number round_up(Number value, Number multiple) {
  return ceil_div(value, multiple) * multiple;
}

/// Returns part `index` of `count` items cut into `parts` contiguous parts in order. Sizes differ
/// by at most one, the larger ones first; with fewer items than parts the last ones are empty.
/// Requires count >= 0, parts >= 1 and 0 <= index < parts.
[[nodiscard]] constexpr Range shard(std::int64_t count, std::int64_t parts, std::int64_t index) {
  const std::int64_t small = count / parts;
  const std::int64_t larger_ones = count % parts;
  return {index * small + std::min(index, larger_ones), small + (index < larger_ones ? 1 : 0)};
}

/// True once this thread has cut samples into parts of unequal sizes, until its trainer looks: a
/// mean of such parts' means is not the mean of all samples.
inline constinit thread_local bool has_unequal_parts = false;

/// Returns a shard() of samples, and sets has_unequal_parts if sizes differ.
[[nodiscard]] inline Range shard_samples(std::int64_t count, std::int64_t parts,
                                         std::int64_t index) {
  has_unequal_parts = has_unequal_parts || count % parts != 0;
  return shard(count, parts, index);
}

}  // namespace lockstep
