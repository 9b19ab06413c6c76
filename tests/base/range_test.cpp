#include "framework/base/range.h"

#include "tests/catch.h"

namespace lockstep {

TEST_CASE("shards cover everything once, in order, in sizes that differ by at most one") {
  for (std::int64_t count = 0; count <= 20; ++count) {
    for (std::int64_t parts = 1; parts <= 9; ++parts) {
      std::int64_t next = 0;
      for (std::int64_t index = 0; index < parts; ++index) {
        const auto part = shard(count, parts, index);
        CHECK(part.offset == next);
        CHECK((part.size == count / parts || part.size == count / parts + 1));
        next += part.size;
      }
      CHECK(next == count);
    }
  }
}

TEST_CASE("numbers are chosen by a property and added up by what they are worth") {
  const std::vector<int> numbers = consecutive(1, 5);
  const auto is_odd = [](int number) { return number % 2 != 0; };
  CHECK(filtered(numbers, is_odd) == std::vector<int>{1, 3, 5});
  CHECK(sum_of(numbers, [](int number) { return std::int64_t{number} * number; }) == 55);
  CHECK(sum_of(std::vector<Range>{}, &Range::size) == 0);
}

TEST_CASE("the intersection of two ranges holds what is in both") {
  constexpr std::int64_t kMost = 7;
  const auto holds = [](const Range& range, std::int64_t number) {
    return number >= range.offset && number < range.end();
  };
  for (std::int64_t a = 0; a < kMost * kMost; ++a) {
    for (std::int64_t b = 0; b < kMost * kMost; ++b) {
      const Range one{a / kMost, a % kMost};
      const Range other{b / kMost, b % kMost};
      const Range both = intersection(one, other);
      CHECK(both.size >= 0);
      for (std::int64_t number = 0; number < 2 * kMost; ++number) {
        if (holds(both, number) != (holds(one, number) && holds(other, number)))
          FAIL(a << " " << b);
      }
    }
  }
  CHECK(intersection<std::uint64_t>({5, 3}, {0, 2}).size == 0);
}

}  // namespace lockstep
