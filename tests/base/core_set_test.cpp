#include "framework/base/core_set.h"

#include <cstddef>
#include <cstdint>
#include <thread>
#include <vector>

#include "framework/base/errors.h"
#include "tests/catch.h"

using namespace lockstep;

namespace {

CoreSet cores(const std::vector<std::size_t>& numbers) {
  CoreSet set;
  for (const std::size_t number : numbers) set.add(number);
  return set;
}

}  // namespace

TEST_CASE("sets of cores are joined, counted, sent and written as the system writes them") {
  CoreSet set = cores({0, 1, 2, 3, 8, 63, 64, 16383});
  CHECK(set.text() == "0-3,8,63-64,16383");
  CHECK(set.size() == 8);
  set |= cores({4, 8, 200});
  CHECK(set == cores({0, 1, 2, 3, 4, 8, 63, 64, 200, 16383}));
  CHECK(set.has(200));
  CHECK(!set.has(201));
  CHECK(!set.has(16384));
  CHECK(decode<CoreSet>(encode(set), "a set") == set);
  CHECK(CoreSet().text().empty());
  CHECK_THROWS_AS(set.add(16384), ValueError);
}

TEST_CASE("a thread runs on the cores that it takes, as far as there are any") {
  const CoreSet all = CoreSet::of_thread();
  REQUIRE(all.size() >= 1);
  std::size_t first = 0;
  while (!all.has(first)) ++first;
  CoreSet alone, with_a_missing_one, after_none;
  std::thread([&] {
    alone = cores({first}).take();
    with_a_missing_one = cores({first, 16383}).take();
    after_none = cores({16383}).take();
  }).join();
  CHECK(alone == cores({first}));
  CHECK(with_a_missing_one == cores({first}));
  CHECK(after_none == cores({first}));
  CHECK(CoreSet::of_thread() == all);
}
