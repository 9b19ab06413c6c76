#include "framework/data/index_list.h"

#include <cstdint>
#include <vector>

#include "tests/catch.h"

using lockstep::Key;
using lockstep::permutation;
using lockstep::data::IndexList;

namespace {

std::vector<std::int64_t> numbers_in(const IndexList& list) {
  std::vector<std::int64_t> numbers;
  for (std::int64_t i = 0; i < list.size(); ++i) numbers.push_back(list[i]);
  return numbers;
}

}  // namespace

TEST_CASE("an order of samples is that of a permutation, in half the memory") {
  for (const std::int64_t count : {0, 1, 2, 3, 1000}) {
    const Key key = Key(7).fold(static_cast<std::uint64_t>(count));
    CHECK(numbers_in(IndexList::permuted(key, count)) == permutation(key, count));
  }
  CHECK(IndexList::bytes(50'000'000) == 200'000'000);
  CHECK(IndexList::bytes(std::int64_t{1} << 32) == std::int64_t{1} << 34);
  CHECK(IndexList::bytes((std::int64_t{1} << 32) + 1) == ((std::int64_t{1} << 32) + 1) * 8);
}

TEST_CASE("a list of samples has the numbers that it was given, however large") {
  const std::vector<std::int64_t> wide{5, std::int64_t{1} << 32, 0, std::int64_t{1} << 40};
  for (const auto& numbers : {std::vector<std::int64_t>{}, {3, 1, 2}, {4'294'967'295, 7}, wide}) {
    CHECK(numbers_in(IndexList(numbers)) == numbers);
  }
  IndexList list(wide);
  CHECK(numbers_in(list.take(1)) == std::vector<std::int64_t>{5});
  list.sort();
  CHECK(numbers_in(list) ==
        std::vector<std::int64_t>{0, std::int64_t{1} << 32, std::int64_t{1} << 40});
}
