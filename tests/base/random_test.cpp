#include "framework/base/random.h"

#include <algorithm>
#include <numeric>
#include <set>

#include "tests/catch.h"

using lockstep::Key;
using lockstep::permutation;

TEST_CASE("a key is a pure function of its folds") {
  CHECK(Key(7).fold("sampler").fold(3).bits() == Key(7).fold("sampler").fold(3).bits());
  const std::set<std::uint64_t> different{Key(7).bits(),
                                          Key(8).bits(),
                                          Key(7).fold(0).bits(),
                                          Key(7).fold("").bits(),
                                          Key(7).fold("a").bits(),
                                          Key(7).fold("ab").bits(),
                                          Key(7).fold(1).bits(),
                                          Key(7).fold("a").fold("b").bits(),
                                          Key(7).fold("b").fold("a").bits()};
  CHECK(different.size() == 9);
}

TEST_CASE("a permutation holds every number once and depends on key and count alone") {
  for (const std::int64_t count : {0, 1, 2, 3, 10, 1000}) {
    auto order = permutation(Key(1), count);
    CHECK(order == permutation(Key(1), count));
    std::sort(order.begin(), order.end());
    std::vector<std::int64_t> sorted(static_cast<std::size_t>(count));
    std::iota(sorted.begin(), sorted.end(), 0);
    CHECK(order == sorted);
  }
  CHECK(permutation(Key(1), 1000) != permutation(Key(2), 1000));
}

TEST_CASE("the order of a seed never changes between versions") {
  CHECK(permutation(Key(0).fold("sampler").fold(0), 8) ==
        std::vector<std::int64_t>{1, 0, 4, 5, 7, 2, 6, 3});
}

TEST_CASE("every order of three is as likely as the others") {
  std::vector<int> seen(27, 0);
  for (std::uint64_t draw = 0; draw < 6000; ++draw) {
    const auto order = permutation(Key(draw), 3);
    ++seen[static_cast<std::size_t>(9 * order[0] + 3 * order[1] + order[2])];
  }
  // Each of the 6 orders: 1000 expected, standard deviation 29.
  CHECK(std::count_if(seen.begin(), seen.end(), [](int n) { return n > 0; }) == 6);
  for (const int n : seen) CHECK((n == 0 || (n > 870 && n < 1130)));
}
