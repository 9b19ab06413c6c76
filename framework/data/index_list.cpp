#include "framework/data/index_list.h"

#include <algorithm>
#include <cstddef>
#include <limits>
#include <numeric>
#include <ranges>
#include <span>
#include <type_traits>

namespace lockstep::data {
namespace {

constexpr std::int64_t kMostNarrow = std::numeric_limits<std::uint32_t>::max();

bool is_narrow(std::int64_t greatest) {
  return greatest <= kMostNarrow;
}

}  // namespace

IndexList::IndexList(const std::vector<std::int64_t>& numbers) {
  if (numbers.empty()) return;
  const auto [least, greatest] = std::ranges::minmax(numbers);
  if (least < 0 || !is_narrow(greatest)) {
    numbers_ = numbers;
    return;
  }
  auto& narrow = std::get<std::vector<std::uint32_t>>(numbers_);
  narrow.reserve(numbers.size());
  for (const std::int64_t number : numbers) narrow.push_back(static_cast<std::uint32_t>(number));
}

IndexList IndexList::permuted(const Key& key, std::int64_t count) {
  IndexList list;
  if (!is_narrow(count - 1)) list.numbers_ = std::vector<std::int64_t>();
  std::visit(
      [&](auto& numbers) {
        numbers.resize(static_cast<std::size_t>(count));
        // An int would be too small from 2^31 on.
        std::iota(numbers.begin(), numbers.end(), std::ranges::range_value_t<decltype(numbers)>{});
        shuffle(key, std::span(numbers));
      },
      list.numbers_);
  return list;
}

std::int64_t IndexList::bytes(std::int64_t count) noexcept {
  return count * static_cast<std::int64_t>(is_narrow(count - 1) ? sizeof(std::uint32_t)
                                                                : sizeof(std::int64_t));
}

std::int64_t IndexList::operator[](std::int64_t i) const {
  return std::visit(
      [&](const auto& numbers) {
        return static_cast<std::int64_t>(numbers[static_cast<std::size_t>(i)]);
      },
      numbers_);
}

IndexList IndexList::take(std::int64_t count) {
  IndexList taken;
  std::visit(
      [&](auto& numbers) {
        const auto middle = numbers.begin() + count;
        taken.numbers_ = std::remove_reference_t<decltype(numbers)>(numbers.begin(), middle);
        numbers.erase(numbers.begin(), middle);
      },
      numbers_);
  return taken;
}

void IndexList::sort() {
  std::visit([](auto& numbers) { std::ranges::sort(numbers); }, numbers_);
}

}  // namespace lockstep::data
